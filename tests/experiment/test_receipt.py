"""Programs whose results are wrong are in the receipt, and are told of where it is told."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from analyses.test_soundness import CONTIGUOUS
from slipstream.errors import BadInput
from slipstream.experiment.plan import ExperimentOutcome
from slipstream.experiment.receipt import (
    bare_receipt,
    combined_receipt,
    read_receipt,
    receipt_of,
    wrong_notes,
)
from slipstream.experiment.variants import (
    BOTH,
    COSTS,
    NO_GRAPHS,
    Arm,
    Variant,
    drop_duplicates,
)
from slipstream.outputs.html.receipt import receipt_page
from slipstream.outputs.terminal.receipt import receipt_lines
from slipstream.run.context import Context
from slipstream.run.settings import Settings
from slipstream.sources.hlo.reader import program_from_text

SOUND = CONTIGUOUS.replace("bf16[2,512]", "f32[2,512]")
THREE = (COSTS, NO_GRAPHS, BOTH)
SAID = "the program's results are wrong: flat reads bf16[2,512]"


@pytest.fixture
def receipt():
    """Of a loop whose original and costs are wrong, and whose third arm is not."""
    made = [(Variant("original"), CONTIGUOUS), (COSTS, CONTIGUOUS), (NO_GRAPHS, SOUND)]
    arms = [Arm(variant, program=program_from_text(text)) for variant, text in made]
    outcome = ExperimentOutcome("jit_step", arms=arms, notes=["first"])
    return receipt_of(SimpleNamespace(outcome=outcome, compiled=SimpleNamespace(compile_s=1.0)))


def test_the_receipt_says_which_arms_are_wrong(receipt):
    wrong = {arm["name"]: arm["wrong"] for arm in receipt.arms}
    assert wrong["original"] == wrong["costs"] and wrong["original"].startswith(SAID)
    assert wrong["no command buffers"] == ""
    assert receipt.notes == ("first", f"original · costs: {wrong['original']}")


def test_where_all_are_wrong_none_is_named(receipt):
    *wrong, sound = receipt.arms
    failed = {**sound, "error": "it was not made"}
    assert wrong_notes([*wrong, failed])[0].startswith(SAID)
    assert wrong_notes([sound]) == wrong_notes(()) == ()


@pytest.mark.parametrize(("rank", "times"), [(0, 1), (1, 0)])
def test_one_rank_tells_of_it_when_it_tells_of_the_compile(receipt, tmp_path, rank, times):
    told = []
    settings = Settings(("true",), tmp_path, rank=(rank, 2))
    done = Context(settings, lambda *said: told.append(said)).finish(receipt)
    assert [phase for phase, _ in told] == ["compile", "", "verdict", "receipt"] * times
    assert sum(text.startswith("original · costs: ") for _, text in told) == times
    assert done.notes == receipt.notes


def test_where_every_variant_is_the_same_program_nothing_else_can_be_tried():
    arms = [Arm(one, program=program_from_text(SOUND)) for one in (Variant("original"), *THREE)]
    drop_duplicates(arms, "cpu", {})
    outcome = ExperimentOutcome("jit_step", arms=arms)
    found = receipt_of(SimpleNamespace(outcome=outcome, compiled=SimpleNamespace(compile_s=1.0)))
    assert (found.verdict, found.why) == (
        "no different",
        "every variant is the same program as the original: there is nothing else to try",
    )
    lines = dict(receipt_lines(found.to_json()))
    assert "compare" not in lines
    same = "the same program as the original: costs; no command buffers; costs, no command buffers"
    assert same in lines["compile"]
    assert lines["verdict"].startswith("no different: Every variant is the same program")
    assert receipt_page(found.to_json()).count("the same program as the original") >= 3


def test_an_arm_that_is_the_same_as_another_names_it():
    arms = [Arm(one, program=program_from_text(SOUND)) for one in (Variant("original"), *THREE)]
    drop_duplicates(arms, "gpu", {})
    outcome = ExperimentOutcome("jit_step", arms=arms)
    found = receipt_of(SimpleNamespace(outcome=outcome, compiled=SimpleNamespace(compile_s=1.0)))
    compiled = dict(receipt_lines(found.to_json()))["compile"]
    assert "the same program as the original: costs · " in compiled
    assert "the same program as no command buffers: costs, no command buffers" in compiled


def function(name, share, calls, before, after, chosen="costs"):
    change = {"estimate": after / before - 1, "low": after / before - 1.02, "high": 0.0}
    return replace(
        bare_receipt("the whole interval lies below zero", "faster"),
        chosen=chosen,
        program={"name": name, "share": share, "calls_per_step": calls},
        step_us={"before": before, "after": after},
        change=change,
    )


def test_several_functions_are_told_each_and_together():
    """Two of them gain: 5% of a step of 1000 µs, and 10 µs for each of two calls a step."""
    receipts = [
        function("jit_gradient", 0.6, 1.0, 1000.0, 950.0),
        function("jit_update", 0.2, 2.0, 500.0, 490.0),
        function("jit_metric", 0.1, 1.0, 1000.0, 1100.0, chosen="original"),
    ]
    combined = combined_receipt(receipts)
    assert combined.program["name"] == "jit_gradient"
    names = [one["program"]["name"] for one in combined.functions]
    assert names == ["jit_gradient", "jit_update", "jit_metric"]
    assert combined.together["after_us"] == pytest.approx(1000 - 50 - 2 * 10)
    assert combined.together["change"]["estimate"] == pytest.approx(-0.07)
    lines = dict(receipt_lines(combined.to_json()))
    assert lines["together"].startswith("a step 1 ms → 930 µs, -7.0%")
    assert "jit_metric, 10% of the device time · faster" in lines["also"]
    page = receipt_page(combined.to_json())
    assert "jit_update, 20% of the device time" in page


def test_a_single_function_is_told_as_before():
    alone = function("jit_step", 0.9, 1.0, 1000.0, 950.0)
    assert combined_receipt([alone]) is alone
    assert alone.functions == () and alone.together is None


def test_a_receipt_reads_back_as_written(receipt, tmp_path):
    bare = bare_receipt("nothing ran")
    for one in (bare, replace(receipt, together={"before_us": 1.0})):
        one.write(tmp_path)
        assert read_receipt(tmp_path).to_json() == json.loads(json.dumps(one.to_json()))
    assert isinstance(read_receipt(tmp_path).arms, tuple)


WRONG = {
    "verdict": 3,
    "why": None,
    "step_us": [1],
    "change": "faster",
    "arms": ["original"],
    "devices": {"H200": 1},
    "notes": [1],
    "together": [],
}


@pytest.mark.parametrize("name", [*WRONG, "missing", "deep", "cut", "list", "folder", "nothing"])
def test_a_damaged_receipt_is_our_error(tmp_path, name):
    file = bare_receipt("nothing ran").write(tmp_path)
    data = json.loads(file.read_text())
    data.pop("verdict" if name == "missing" else "phases")
    content = {
        "deep": '{"a":' * 100_000,
        "cut": file.read_text()[:100],
        "list": "[]",
    }.get(name, json.dumps(data | {name: WRONG.get(name)}))
    file.write_text(content)
    if name in ("folder", "nothing"):
        file.unlink()
    if name == "folder":
        file.mkdir()
    with pytest.raises(BadInput, match="receipt"):
        read_receipt(tmp_path)


def test_a_receipt_is_for_its_owner_and_holds_no_secrets(receipt, tmp_path):
    secret = "hf_" + "aB3" * 12
    repeat = {"command": ["python", "t.py"], "environment": {"TOKEN": "abc"}}
    found = replace(receipt, notes=(f"the hub refused {secret}",), repeat=repeat)
    file = found.write(tmp_path)
    assert file.stat().st_mode & 0o777 == 0o600
    text = file.read_text()
    assert "the hub refused ***" in text and '"TOKEN": "***"' in text and secret not in text
