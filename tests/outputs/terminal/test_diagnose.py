"""A diagnosis for people and as JSON."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slipstream.errors import BadInput
from slipstream.outputs.html.sections.findings import findings_section
from slipstream.outputs.terminal.diagnose import diagnose_json, gain_text, render_diagnosis
from slipstream.outputs.terminal.table_options import arranging, check_columns, table_options
from slipstream.results.diagnosis import (
    Abstention,
    Diagnosis,
    Exhibit,
    Finding,
    Gain,
    Remedy,
)

COPIES = Finding(
    "host-copies",
    "host copies are serialised by command buffers",
    "2 copies ran in line with the kernels: 38.8 ms of the step.",
    Gain(17_200.0, 12_600.0, 24_500.0, "simulated", "simulated twice"),
    (
        Remedy("flag", "--xla_gpu_enable_command_buffer=", "turns CUDA graphs off"),
        Remedy("command", "slipstream costs extract PATH -o costs.pb"),
    ),
    (
        Exhibit("wrapped_dynamic-slice", 19_400.0, 8, "/home/me/model.py:18", "copy 134 MB"),
        Exhibit("copy.1", 12.0, 0, "", "", "exposed"),
    ),
    "slipstream overlap PATH",
    ("https://example.com",),
)
UNKNOWN = Finding(
    "pgle-unused", "much is exposed", "23.6 ms.", Gain(None, 0.0, 23_000.0, "bound"), ()
)
DIAGNOSIS = Diagnosis(
    "jit_step(1)",
    "NVIDIA H200",
    3,
    460_000.0,
    "0.11.2",
    (COPIES, UNKNOWN),
    (Abstention("straggler", "one device was recorded"),),
    ("float32", "remat"),
    ("no steps were found",),
)


def test_the_whole_text() -> None:
    assert (
        render_diagnosis(DIAGNOSIS, everything=True, path="logs").plain
        == """\
NVIDIA H200 · jit_step · step 460 ms · 3 steps · flags of jaxlib 0.11.2

1  host copies are serialised by command buffers
   saves 17.2 ms per step (3.7%), 12.6 ms to 24.5 ms: simulated
   2 copies ran in line with the kernels: 38.8 ms of the step.
     wrapped_dynamic-slice  model.py:18  8 ×  19.4 ms  copy 134 MB
     copy.1                                     12 µs               exposed
   do   --xla_gpu_enable_command_buffer=
        flag: turns CUDA graphs off
   do   slipstream costs extract logs -o costs.pb
        command
   see  slipstream overlap logs

2  much is exposed
   saves at most 23 ms per step (5.0%); exact gain unknown
   23.6 ms.

gains don't add up: several findings may concern the same time
can't tell  straggler: one device was recorded
not found   float32, remat

! no steps were found"""
    )


def test_less_of_it() -> None:
    lines = render_diagnosis(DIAGNOSIS, top=1).plain.splitlines()
    assert lines[-4:] == [
        "… and 1 more: --top 2",
        "2 rules found nothing, 1 rule could not tell: --all",
        "",
        "! no steps were found",
    ]


def test_nothing_found() -> None:
    healthy = Diagnosis("", "", 0, 0.0, "0.11.2", (), (), ("float32",))
    assert render_diagnosis(healthy).plain.splitlines() == [
        "unknown device · recording 0 ps · flags of jaxlib 0.11.2",
        "",
        "no problems found",
        "",
        "1 rule found nothing: --all",
    ]


def test_a_long_path_is_left_out() -> None:
    shown = render_diagnosis(DIAGNOSIS, path="/a/long/way" * 8).plain
    assert "see  slipstream overlap PATH" in shown
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize(
    ("gain", "text"),
    [
        (Gain(50.0, 0.0, 60.0, "modelled"), "saves 50 µs per step (5.0%), 0 to 60 µs: modelled"),
        (Gain(50.0, 50.0, 50.0, "measured"), "saves 50 µs per step (5.0%): measured"),
        (Gain(None, 0.0, None, "unknown"), "gain unknown"),
    ],
)
def test_what_is_won(gain: Gain, text: str) -> None:
    assert gain_text(gain, 1000.0) == text


RESHARDING = Finding(
    "resharding", "activations change their sharding", "2 collectives: 1.62 s of the step.",
    Gain(None, 0.0, 1_600_000.0, "bound"), (),
    (
        Exhibit("all-to-all.10.1", 1_332_000.0, 4, "model.py:22", "all-to-all 1.07 GB",
                "dimension 0 → 1"),
        Exhibit("all-gather.9.1", 289_000.0, 4, "model.py:25", "all-gather 268 MB",
                "dimension 2 → whole"),
    ),
)  # fmt: skip
OFFLOAD = Finding(
    "offload", "values are offloaded", "The copies are exposed for 38.8 ms of the step.",
    Gain(38_300.0, 0.0, 38_800.0, "simulated"), (),
    (
        Exhibit("wrapped_dynamic-slice", 19_400.0, 0, "dev_off.py:18", "copy from host 134 MB",
                "exposed"),
        Exhibit("wrapped_dynamic-update-slice", 19_400.0, 0, "dev_off.py:18",
                "copy to host 134 MB", "exposed"),
    ),
)  # fmt: skip
TWO = replace(DIAGNOSIS, findings=(RESHARDING, OFFLOAD), notes=())


def shown_of_two(**options) -> str:
    with arranging(table_options(**options)):
        text = render_diagnosis(TWO).plain
        check_columns()
    return text


def test_no_number_and_no_unit_is_cut() -> None:
    """Notes have a column where names of instructions leave room for them, otherwise a line."""
    assert (
        render_diagnosis(TWO).plain
        == """\
NVIDIA H200 · jit_step · step 460 ms · 3 steps · flags of jaxlib 0.11.2

1  activations change their sharding
   saves at most 1.6 s per step (347.8%); exact gain unknown
   2 collectives: 1.62 s of the step.
     all-to-all.10.1  model.py:22  4 ×  1.33 s  all-to-all 1.07 GB
                                                dimension 0 → 1
     all-gather.9.1   model.py:25  4 ×  289 ms  all-gather 268 MB
                                                dimension 2 → whole

2  values are offloaded
   saves 38.3 ms per step (8.3%), 0 to 38.8 ms: simulated
   The copies are exposed for 38.8 ms of the step.
     wrapped_d…mic-slice  dev_off.py:18  19.4 ms  copy from host 134 MB  exposed
     wrapped_d…ate-slice  dev_off.py:18  19.4 ms  copy to host 134 MB    exposed

gains don't add up: several findings may concern the same time
2 rules found nothing, 1 rule could not tell: --all"""
    )


def test_instructions_are_arranged_as_asked() -> None:
    lines = shown_of_two(is_wide=True).splitlines()
    assert lines[5] == (
        "     all-to-all.10.1  model.py:22  4 ×  1.33 s  all-to-all 1.07 GB  dimension 0 → 1"
    )
    lines = shown_of_two(sort="ms:asc", columns="what,ms").splitlines()
    assert lines[5:7] == [
        "     all-gather 268 MB   289 ms",
        "     all-to-all 1.07 GB  1.33 s",
    ]
    with pytest.raises(BadInput, match="choose from: instruction, source, count, time, what, note"):
        shown_of_two(columns="bytes")


def test_findings_are_filtered_by_their_text_and_their_instructions() -> None:
    lines = shown_of_two(pattern="update-slice").splitlines()
    assert [line for line in lines if line[:1].isdigit() or line.startswith("     ")] == [
        "2  values are offloaded",
        "     wrapped_dy…date-slice  dev_off.py:18  19.4 ms  copy to host 134 MB  exposed",
        "2 rules found nothing, 1 rule could not tell: --all",
    ]
    by_title = shown_of_two(pattern="^activations").splitlines()
    assert sum(line.startswith("     all-") for line in by_title) == 2
    assert shown_of_two(pattern="remat").splitlines()[2] == "no finding matches 'remat'"


def test_json() -> None:
    found = diagnose_json(DIAGNOSIS, top=1)
    assert len(found["findings"]) == 1
    gain = found["findings"][0]["gain"]
    assert gain["share"] == pytest.approx(17.2 / 460)
    assert list(found["abstained"]) == [{"rule": "straggler", "why": "one device was recorded"}]


def test_what_is_wrong_has_no_gain() -> None:
    wrong = Finding(
        "wrong-results", "results are wrong", "b reads f32[8] as f32[4].",
        Gain(None, 0.0, None, "unknown"), (), (Exhibit("b", 0.0, note="f32[8] as f32[4]"),),
        is_wrong=True,
    )  # fmt: skip
    found = replace(DIAGNOSIS, findings=(wrong,))
    assert render_diagnosis(found).plain.splitlines()[2:6] == [
        "1  results are wrong",
        "   wrong results: fix this first",
        "   b reads f32[8] as f32[4].",
        "     b  f32[8] as f32[4]",
    ]
    assert diagnose_json(found)["findings"][0]["is_wrong"] is True
    section = str(findings_section(found).body)
    assert "results, not time" in section and "gain not known" not in section
