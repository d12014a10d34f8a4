"""Receipts, predictions and studies in real Chromium: the report's shell, and its rules."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from scheduling_results import made_up_scheduling
from slipstream.cli.main import app
from slipstream.outputs.html.receipt import receipt_page
from slipstream.outputs.html.schedule import write_schedule
from slipstream.outputs.html.study import study_page
from slipstream.results.tuning import HANG, ErrorMargin, KnobEffect, TrialResult, Tuning

ROOT = Path(__file__).parents[2]
CONTRAST = (Path(__file__).parent / "contrast.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def receipt(tmp_path_factory) -> str:
    data = json.loads((ROOT / "docs/receipts/gpt_offload.json").read_text(encoding="utf-8"))
    path = tmp_path_factory.mktemp("receipt") / "receipt.html"
    path.write_text(receipt_page(data), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def prediction(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("prediction") / "page.html"
    program = str(ROOT / "tests/data/nccl2_lhs_r0.hlo.gz")
    options = ["--on", "2xH200,2xH100", "--html", str(path)]
    done = CliRunner().invoke(app, ["simulate", program, *options], catch_exceptions=False)
    assert done.exit_code == 0
    return path.as_uri()


GATHER, GEMM = "xla_gpu_all_gather_combine_threshold_bytes", "xla_gpu_enable_triton_gemm"
TRIALS = (
    TrialResult(0, {}, "ok", "default", 1000.0, memory_bytes=2 << 30, exposed_us=300.0, change=0.0),
    TrialResult(1, {GATHER: "67108864"}, "ok", "layers", 900.0, exposed_us=200.0, change=-0.1),
    TrialResult(
        2, {GEMM: "false", GATHER: "1"}, "ok", "search", 1100.0, change=0.1, note="<b>waits</b>"
    ),
    TrialResult(3, {GEMM: "false"}, HANG, "search"),
)


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> str:
    gather = KnobEffect(GATHER, ("1", "67108864"), "1", "Joins all-gathers.", "program")
    gather = replace(gather, best_value="67108864", effect=-0.1, interval=(-0.12, -0.08), tried=2)
    tuning = Tuning(
        "gpt.py:build", "8xH200", "jit_step", "step", "0.10.2", TRIALS[0], TRIALS[1], TRIALS,
        (gather,), {"NCCL_ALGO": "only a measurement can tell"}, ("fewer all-gathers",),
        ErrorMargin(0.036, "mean error", 0), None, "4 candidates were tried", 60.0, "study",
    )  # fmt: skip
    path = tmp_path_factory.mktemp("study") / "study.html"
    path.write_text(study_page(tuning), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def schedule(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("schedule") / "schedule.html"
    write_schedule(made_up_scheduling(), path)
    return path.as_uri()


@pytest.fixture(scope="module")
def comparison(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("diff") / "diff.html"
    sides = [str(ROOT / f"tests/data/nccl2_{name}_r0.xplane.pb.gz") for name in ("nolhs", "lhs")]
    done = CliRunner().invoke(app, ["diff", *sides, "--html", str(path)], catch_exceptions=False)
    assert done.exit_code == 0
    return path.as_uri()


def test_a_comparison(page, comparison):
    page.goto(comparison)
    page.locator("#timeline-view[data-ready]").wait_for()
    assert page.locator("h1").inner_text() == "jit_train_step: faster"
    said = page.locator("#diff").inner_text()
    assert "The step takes 3.47 s instead of 3.98 s: exposed communication −508 ms" in said
    assert "Neither recording contains the XLA flags" in page.locator("#flags").inner_text()
    assert page.evaluate(CONTRAST) == []
    # A slice of the first step leads to what it was matched with in the second.
    view = "SlipstreamDiff.view"
    page.fill("#timeline input[type=search]", "all-to-all.10.1")
    page.keyboard.press("Enter")
    page.locator("#timeline .tl-panel dt", has_text="in the other step").wait_for()
    lanes = page.evaluate(f"[{view}.selected.lane, {view}.partner.lane]")
    assert sorted(lane[:2] for lane in lanes) == ["0/", "1/"]
    page.get_by_role("button", name="Go to its partner").click()
    assert page.evaluate(f"{view}.selected.lane") == lanes[1]
    assert page.evaluate(f"{view}.strips") == 2


def test_a_schedule(page, schedule):
    page.goto(schedule)
    assert page.locator("h1").inner_text() == "Schedule: jit_step"
    assert "closes 83% of the gap" in page.locator("#orders").inner_text()
    assert page.locator("#orders tbody tr").count() == 4
    # One turn in XLA's order and in ours, on one axis: the later end is that of XLA's.
    boxes = page.locator("#layer .lane-row rect, #layer .lane-row span[style], #layer rect")
    assert boxes.count() >= 5
    assert "gather <W>" in page.locator("#layer").inner_html().replace("&lt;", "<").replace(
        "&gt;", ">"
    )
    assert page.locator("#moved tbody tr").count() == 1
    assert page.locator("#programs tbody tr").count() == 3
    assert page.evaluate(CONTRAST) == []


def test_a_study(page, study):
    page.goto(study)
    assert page.locator("h1").inner_text() == "jit_step"
    assert "1 ms → 900 µs, -10.0%, simulated" in page.locator("#best").inner_text()
    assert page.locator("#best pre").inner_text() == f"--{GATHER}=67108864"
    numbers = page.locator("#ranking tbody tr td:first-child").all_inner_texts()
    assert numbers == ["1", "0", "2", "3"]
    assert "hang" in page.locator("#ranking tbody tr").last.inner_text()
    assert "<b>waits</b>" in page.locator("#ranking").inner_text()
    assert page.locator("#knobs tbody tr").count() == 1
    assert page.locator("#left-out tbody tr").count() == 1
    assert page.evaluate(CONTRAST) == []


def test_a_receipt(page, receipt):
    page.goto(receipt)
    assert page.locator("h1").inner_text() == "jit_step: faster"
    assert page.locator("#steps .sides > .bar").count() == 2
    assert page.locator("#programs tbody tr").count() == 4
    assert page.evaluate(CONTRAST) == []
    page.locator("#programs th button", has_text="Step").first.click()
    assert page.locator("#programs th[aria-sort=descending]").count() == 1
    page.locator("summary").click()
    assert page.locator("details pre").is_visible()


def test_a_prediction(page, prediction):
    page.goto(prediction)
    assert page.locator("h1").inner_text() == "jit_train_step, predicted"
    assert page.locator("#prediction .sides > .bar").count() == 2
    assert page.evaluate(CONTRAST) == []
    page.locator("#timeline-view[data-ready]").wait_for()


def test_on_a_phone(phone, receipt, prediction, study, schedule):
    for address in (receipt, prediction, study, schedule):
        phone.goto(address)
        assert phone.evaluate("document.documentElement.scrollWidth") == 390


def test_in_the_dark(dark, receipt, prediction, study, schedule):
    for address in (receipt, prediction, study, schedule):
        dark.goto(address)
        assert dark.evaluate(CONTRAST) == []
