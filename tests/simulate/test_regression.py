"""Predictions next to their baselines: what fails, what can't be told, what files may hold."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from slipstream.errors import BadInput
from slipstream.outputs.regression import markdown, render_regressions, verdict_text
from slipstream.results.regression import Baseline
from slipstream.simulate.regression import read_baselines, regression

BEFORE = Baseline(
    machine="64xH100",
    program="jit_step",
    fingerprint="a" * 32,
    step_us=100_000.0,
    compute_us=80_000.0,
    exposed_communication_us=15_000.0,
    exposed_copy_us=0.0,
    idle_us=5_000.0,
    memory_bytes=60_000_000_000,
    memory_capacity_bytes=80_000_000_000,
    versions={"slipstream": "0.1.0", "jaxlib": "0.10.2"},
)


def after(factor: float = 1.0, memory: float = 1.0, **changes: object) -> Baseline:
    """Another program, whose parts all grew alike."""
    times = {name: value * factor for name, value in asdict(BEFORE).items() if name[-3:] == "_us"}
    changed = replace(BEFORE, fingerprint="b" * 32, memory_bytes=int(60e9 * memory), **times)
    return replace(changed, **changes)


@pytest.mark.parametrize(
    ("factor", "verdict", "passed"),
    [
        (1.2, "slower", False),
        (1.034, "slower", False),
        (1.03, "can't tell", True),
        (1.0, "can't tell", True),
        (0.9, "faster", True),
    ],
)
def test_the_step(factor: float, verdict: str, passed: bool) -> None:
    found = regression(BEFORE, after(factor), 0.02, 0.02)
    assert (found.verdict, found.passed) == (verdict, passed)
    assert found.tells == pytest.approx(0.0334, abs=1e-4)


def test_a_change_below_what_predictions_tell_is_called_so() -> None:
    found = regression(BEFORE, after(1.03), 0.02, 0.02)
    (note,) = found.notes
    assert note == (
        "a change of +3.0% is below the 3.3% that two predictions can tell, so it is no failure"
    )
    assert regression(BEFORE, after()).notes == ()


def test_time_that_moves_between_parts_is_told_less_surely() -> None:
    moved = after(compute_us=50_000.0, exposed_communication_us=45_000.0)
    assert regression(BEFORE, moved).tells > 2 * regression(BEFORE, after()).tells


def test_the_same_program_never_fails() -> None:
    found = regression(BEFORE, after(1.5, 2, fingerprint=BEFORE.fingerprint), 0.0, 0.0)
    assert (found.verdict, found.passed, found.failures) == ("same program", True, ())
    assert found.notes == ("the predictions of one program differ: other costs, options or models",)
    unknown = replace(BEFORE, fingerprint=None)
    assert regression(unknown, replace(after(1.5), fingerprint=None), 0.02).passed is False


def test_memory_has_its_own_limit() -> None:
    assert regression(BEFORE, after(memory=1.03), 0.1, 0.02).failures == (
        "a device needs 3.0% more memory; the limit is 2.0%",
    )
    assert regression(BEFORE, after(memory=1.03), 0.02, 0.05).passed
    assert regression(BEFORE, after(memory=1.4), 0.02, 9.0).failures == (
        "it no longer fits: a device needs 84 GB and has 80 GB",
    )
    assert regression(BEFORE, after(memory_bytes=None), 0.02, 0.02).passed


def test_other_versions_are_named() -> None:
    other = after(versions={"slipstream": "0.2.0", "jaxlib": "0.10.2"}, program="jit_train")
    assert regression(BEFORE, other).notes == (
        "the programs have different names: jit_step, jit_train",
        "made with other versions, which may be the cause: slipstream 0.1.0 → 0.2.0",
    )


def test_as_text_and_as_a_comment() -> None:
    found = regression(BEFORE, after(1.1, program="a|b_<img>"), 0.02, 0.05)
    assert verdict_text(found) == (
        "gate 2.0%, memory 5.0%: failed: the step is slower by 10.0%; the limit is 2.0%"
    )
    assert render_regressions([found]).plain.splitlines() == [
        "",
        "64xH100 against the baseline   before     after   change",
        "step                           100 ms    110 ms   +10.0%",
        "  compute                       80 ms     88 ms   +10.0%",
        "  exposed communication         15 ms   16.5 ms   +10.0%",
        "memory of a device              60 GB     60 GB     same",
        "the programs have different names: jit_step, a|b_<img>",
    ]
    assert markdown([found]).splitlines() == [
        "<!-- slipstream predict -->",
        r"### Predicted step of a\|b\_\<img\>: failed",
        "",
        "| 64xH100 | before | after | change |",
        "| --- | ---: | ---: | ---: |",
        "| step | 100 ms | 110 ms | +10.0% |",
        "| compute | 80 ms | 88 ms | +10.0% |",
        "| exposed communication | 15 ms | 16.5 ms | +10.0% |",
        "| memory of a device | 60 GB | 60 GB | same |",
        "",
        "**Gate 2.0%, memory 5.0%: failed: the step is slower by 10.0%; the limit is 2.0%**",
        "",
        r"- the programs have different names: jit\_step, a\|b\_\<img\>",
        "",
        "<sub>Compiled by XLA and simulated, with no GPU: slipstream 0.1.0, jaxlib 0.10.2</sub>",
    ]


def test_a_comment_of_each_target_and_machine() -> None:
    found = [regression(BEFORE, after(1.1), 0.02, 0.02)]
    first = markdown(found, "train.py:build").partition("\n")[0]
    assert first == "<!-- slipstream predict train.py:build on 64xH100 -->"
    odd = markdown(found, 'a--> "b"\\.py:build').partition("\n")[0]
    assert odd == "<!-- slipstream predict a-_ _b__.py:build on 64xH100 -->"


def test_baselines_from_files(tmp_path: Path) -> None:
    file = tmp_path / "base.json"
    file.write_text(json.dumps({"predictions": [asdict(BEFORE), asdict(after())]}))
    assert read_baselines(file) == (BEFORE, after())
    old = asdict(BEFORE)
    del old["fingerprint"], old["versions"]
    file.write_text(json.dumps(old))
    assert read_baselines(file) == (replace(BEFORE, fingerprint=None, versions={}),)


@pytest.mark.parametrize(
    "content",
    ["{}", '{"predictions": 3}', '{"predictions": [3]}', "[]", "{", '{"step_us": "1"}'],
)
def test_files_that_are_no_baseline(tmp_path: Path, content: str) -> None:
    file = tmp_path / "base.json"
    file.write_text(content)
    with pytest.raises(BadInput, match=r"base\.json"):
        read_baselines(file)
