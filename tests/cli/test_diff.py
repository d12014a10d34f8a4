"""`slipstream diff`: what it prints, its JSON, and its gate."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from slipstream.cli.main import app
from slipstream.cli.profiles.diff import distinct_names, parse_gate
from slipstream.errors import BadInput, CheckFailed
from slipstream.machines.topology import machine
from slipstream.outputs.xplane_writer import write_timeline
from slipstream.simulate.engine import simulate
from slipstream.sources.load import load

DATA = Path(__file__).parent.parent / "data"
LHS, PGLE, DEFAULT = (
    str(DATA / f"off_{name}.xplane.pb.gz") for name in ("lhs_nocb", "pgle_nocb", "default")
)
FAST, SLOW = (str(DATA / f"nccl2_{name}_r0.xplane.pb.gz") for name in ("lhs", "nolhs"))


def run(*arguments: str) -> str:
    return CliRunner().invoke(app, ["diff", *arguments], catch_exceptions=False).output


def test_what_it_prints():
    assert (
        run(DEFAULT, LHS)
        == """\
before  off_default.xplane.pb.gz · jit_step 7733d8da · 3 steps · 461 ms
after   off_lhs_nocb.xplane.pb.gz · jit_step 7733d8da · 3 steps · 438 ms

can't tell: −4.6% (90%: −5.1% … +0.3%); the steps vary too much

                  before  after  change, ms
step               460.5  438.3       −22.2
  compute          416.6  414.2        −2.4
  exposed copies    42.0   22.4       −19.6
  idle               1.8    1.9        +0.1

matched ops cover 100% of device time before and 100% after; identical kernels
run 0.3% faster (clock or machine), which `net` excludes

     most changed                      source         before  after  net, ms
8 ×  forward · copy to host 134 MB     dev_off.py:18    19.4    0.1    −19.3
8 ×  forward · x @ w2                  model.py:25      23.7   25.5     +2.0
8 ×  forward · x @ w1                  model.py:25      22.7   24.4     +1.8
8 ×  forward · x @ wqkv                model.py:18      17.1   18.4     +1.4
8 ×  backward · copy from host 134 MB  dev_off.py:18    19.4   20.3     +0.8
8 ×  forward · einsum BTNH,BSNH→BNTS   model.py:22      12.7   13.2     +0.5
1 ×  backward · dy @ emb               dev_off.py:19     2.9    3.3     +0.4
1 ×  forward · x @ embᵀ                dev_off.py:19     2.8    3.2     +0.4
8 ×  forward · gelu                    model.py:25       3.4    3.7     +0.3
8 ×  backward · dy @ w1ᵀ               model.py:25      24.4   23.8   −0.6 ~
… and 96 more with smaller changes, within noise or none
~ within noise

schedule: same order
  8 × copy to host 134 MB · dev_off.py:18: exposed 19.4 ms → 105 µs; now off the
    compute stream
  8 × copy from host 134 MB · dev_off.py:18: exposed 19.4 ms → 20.3 ms; now off
    the compute stream
"""
    )


def test_json():
    found = json.loads(run(DEFAULT, LHS, "--json", "--gate", "2%"))
    assert list(found) == [
        "before",
        "after",
        "verdict",
        "parts",
        "drift",
        "changes",
        "moves",
        "reordered",
        "groups",
        "move_groups",
        "gate",
    ]
    assert found["before"]["matched_share"] == 1
    assert found["gate"] == {"limit": 0.02, "passed": True}
    assert len(found["changes"]) == 116
    assert found["changes"][0]["description"] == "copy to host 134 MB"
    assert found["moves"][0]["before"]["is_inline"]
    assert len(json.loads(run(DEFAULT, LHS, "--json", "--top", "3"))["changes"]) == 3


def test_the_gate():
    assert "gate 2.0%: passed" in run(LHS, PGLE, "--gate", "2%")
    with pytest.raises(CheckFailed, match=r"gate 2.0%: failed: slower by at least \+12.1%"):
        run(FAST, SLOW, "--gate", "2%")
    assert "passed" in run(FAST, SLOW, "--gate", "20")
    assert "passed" in run(SLOW, FAST, "--gate", "0%")


def test_a_gate_on_different_programs():
    other = str(DATA / "single.xplane.pb.gz")
    with pytest.raises(BadInput, match=r"undecided: only .* compare two profiles of one model$"):
        run(LHS, other, "--gate", "2%")
    assert json.loads(run(LHS, other, "--json"))["verdict"]["change"] is None


def test_a_gate_that_can_not_be_judged(tmp_path):
    """One step of a prediction against a recording: nothing to go by, which is no pass."""
    profile = load(LHS)
    program = profile.programs["jit_step(342693)"]
    from recorded import protos

    proto = protos("off_lhs_nocb")["jit_step(342693)"]
    timeline = write_timeline(
        simulate(program, machine("H200")), tmp_path / "predicted.xplane.pb", proto
    )
    with pytest.raises(BadInput, match="undecided: a prediction and a recording also differ"):
        run(str(timeline), PGLE, "--gate", "2%")
    shown = run(str(timeline), str(timeline))
    assert "no different: +0.0%; both are predictions" in shown
    assert "no op changed enough to matter" in shown
    found = json.loads(run(str(timeline), PGLE, "--json"))
    assert found["before"]["is_simulated"] and not found["after"]["is_simulated"]
    assert found["before"]["matched_share"] > 0.95


@pytest.mark.parametrize(
    ("text", "share"),
    [("2%", 0.02), ("2", 0.02), ("0.5%", 0.005), (" 1.5% ", 0.015), ("0%", 0), ("150%", 1.5)],
)
def test_limits(text, share):
    assert parse_gate(text) == pytest.approx(share)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0.02", r"may be 2.00% or 0.02%; write the sign: --gate 2%"),
        ("two", "is not a limit"),
        ("-1%", "not a limit"),
        ("nan", "not a limit"),
    ],
)
def test_what_is_no_limit(text, said):
    with pytest.raises(BadInput, match=said):
        parse_gate(text)


def test_as_a_comment(tmp_path):
    """The table for a pull request, also of a gate that fails or can't be judged."""
    comment = tmp_path / "comment.md"
    with pytest.raises(CheckFailed):
        run(FAST, SLOW, "--gate", "2%", "--top", "2", "--markdown", str(comment))
    assert comment.read_text(encoding="utf-8").splitlines() == [
        "<!-- slipstream diff -->",
        r"### Step of jit\_train\_step: failed",
        "",
        "| median step | before | after | change |",
        "| --- | ---: | ---: | ---: |",
        "| step | 3.47 s | 3.98 s | +14.7% |",
        "| compute | 63.2 ms | 67.9 ms | +7.3% |",
        "| exposed communication | 3.4 s | 3.91 s | +14.9% |",
        "| exposed copies | 192 µs | 292 µs | +52.4% |",
        "| idle | 1.97 ms | 3 ms | +52.8% |",
        "",
        "**Gate 2.0%: failed: slower by at least +12.1%**",
        "",
        "- slower: +14.7% (90%: +12.1% … +22.8%); the whole interval lies on one side of zero",
        "",
        "| most changed | how | source | before | after | net, ms |",
        "| --- | --- | --- | ---: | ---: | ---: |",
        "| backward · all-to-all 1.07 GB | same | model.py:22 | 1332.0 | 1566.4 | +234.4 |",
        "| backward · all-to-all 134 MB | same | model.py:25 | 827.8 | 1018.5 | +190.7 |",
        "",
        r"<sub>nccl2\_lhs\_r0.xplane.pb.gz: 3 steps; nccl2\_nolhs\_r0.xplane.pb.gz: 3 steps; "
        "matched ops cover 100% and 100% of device time</sub>",
    ]
    with pytest.raises(BadInput):
        run(LHS, str(DATA / "single.xplane.pb.gz"), "--gate", "2%", "--markdown", str(comment))
    lines = comment.read_text(encoding="utf-8").splitlines()
    assert lines[1] == r"### Step of jit\_train\_step: undecided"
    assert lines[3].startswith("**Gate 2.0%: undecided: only ") and len(lines) == 6
    run(LHS, LHS, "--markdown", str(comment))
    lines = comment.read_text(encoding="utf-8").splitlines()
    assert lines[1] == r"### Step of jit\_step: can't tell"
    assert "No op changed enough to matter." in lines


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (("a/before.pb", "b/after.pb"), ("before.pb", "after.pb")),
        (("/t/base/profile", "/t/new/profile/"), ("base/profile", "new/profile")),
        (("new/profile", "profile"), ("new/profile", "profile")),
        (("one.pb", "./one.pb"), ("one.pb", "one.pb")),
    ],
)
def test_names_that_tell_two_paths_apart(paths, names):
    assert distinct_names(*paths) == names


def test_equal_collectives_of_the_schedule_are_one_line_unless_flat():
    for options, shown in (((), ["20 × all-to-all"]), (("--flat",), ["4 × all-to-all"] * 4)):
        lines = run(SLOW, FAST, *options).partition("schedule:")[2].splitlines()
        same = [line.strip() for line in lines if "all-to-all 134 MB · model.py:25" in line]
        assert [line.partition(" 134")[0] for line in same] == shown
