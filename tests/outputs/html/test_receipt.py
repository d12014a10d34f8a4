"""Receipts as pages: the verdict, the programs, and how to repeat them."""

import json
import re
from pathlib import Path

import pytest

from slipstream.outputs.html.receipt import receipt_page
from slipstream.outputs.terminal.receipt import receipt_lines, verdict_text

RECEIPTS = sorted((Path(__file__).parents[3] / "docs" / "receipts").glob("*.json"))


@pytest.mark.parametrize("path", RECEIPTS, ids=lambda path: path.stem)
def test_a_receipt_is_told_in_full(path):
    receipt = json.loads(path.read_text(encoding="utf-8"))
    text = receipt_page(receipt)
    said = re.sub(r"<[^>]+>", "", text.replace("&gt;", ">").replace("&amp;", "&"))
    verdict = verdict_text(receipt)
    assert verdict[1:] in said
    for arm in receipt["arms"]:
        assert arm["name"] in said
    assert ("All numbers are predicted" in said) == (receipt["basis"] == "predicted")
    assert 'id="repeat-command"' in text


def test_a_program_that_was_turned_down_is_named():
    receipt = json.loads((RECEIPTS[0].parent / "gpt.json").read_text(encoding="utf-8"))
    assert receipt["chosen"] == "original" and "costs, not kept" in receipt_page(receipt)


def test_a_receipt_with_hardly_anything_in_it():
    """A job that ended before anything was compared has a page too."""
    receipt = json.loads(RECEIPTS[0].read_text(encoding="utf-8"))
    nothing = {"arms": [], "overlap": {}, "change": None, "notes": ["it stopped"], "program": {}}
    nothing |= {"step_us": {"before": None, "after": None}, "bounds": {}, "versions": {}}
    nothing |= {"devices": [], "repeat": {}, "pgle": {}}
    text = receipt_page({**receipt, **nothing})
    assert "it stopped" in text and "<h1>A job" in text


def test_the_slowest_rank_of_each_phase_is_named():
    receipt = json.loads(RECEIPTS[0].read_text(encoding="utf-8"))
    seconds = {"compile": {"median": 2.0, "slowest": 9.0, "rank": 13}}
    ranks = {"count": 16, "reported": 15, "seconds": seconds}
    text = receipt_page({**receipt, "ranks": ranks})
    said = " ".join(re.sub(r"<[^>]+>", " ", text).split())
    assert "How long each phase took on 15 of 16 ranks." in said
    assert "compile 2 s 9 s 13" in said
    alone = {"count": 1, "reported": 1, "seconds": seconds}
    assert "How long each phase" not in receipt_page({**receipt, "ranks": alone})


def page_text(receipt):
    return " ".join(re.sub(r"<[^>]+>", " ", receipt_page(receipt)).split())


def test_recorded_steps_that_take_longer_are_said_once_with_both_times():
    receipt = json.loads((RECEIPTS[0].parent / "keras_fit.json").read_text(encoding="utf-8"))
    lines = dict(receipt_lines(receipt))
    assert lines["recorded"].startswith(
        "a step took 16.9 ms while it was recorded and 5.26 ms when it was timed: "
    )
    assert page_text(receipt).count("took 16.9 ms while it was recorded and 5.26 ms when") == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({}, False),
        ({"step_us": {"before": 1091.0, "after": 1100.0}}, False),
        ({"step_us": {"before": 1089.0, "after": 1100.0}}, True),
        ({"step_us": {"before": 1340.0, "after": 1300.0}}, True),
        ({"step_us": {"before": 500.0, "after": 500.0}, "basis": "predicted"}, False),
        ({"step_us": {"before": None, "after": None}}, False),
        ({"overlap": {"before": None}}, False),
        ({"step_us": {"before": 1200.0, "after": 500.0}}, False),
        ({"step_us": {"before": 1200.0, "after": 500.0}, "chosen": "costs"}, True),
    ],
)
def test_recorded_and_timed_steps_differ_by_more_than_a_tenth(change, says):
    receipt = json.loads((RECEIPTS[0].parent / "gpt.json").read_text(encoding="utf-8"))
    base = {
        "chosen": "original",
        "overlap": {"before": {"wall": 1200.0}, "after": {"wall": 1200.0}},
        "step_us": {"before": 1200.0, "after": 1200.0},
    }
    found = {**receipt, **base, **change}
    assert ("recorded" in dict(receipt_lines(found))) == says
    assert ("while it was recorded" in page_text(found)) == says
