"""Programs whose results are wrong are in the receipt, and are told of where it is told."""

from types import SimpleNamespace

import pytest

from analyses.test_soundness import CONTIGUOUS
from slipstream.experiment.plan import ExperimentOutcome
from slipstream.experiment.receipt import receipt_of, wrong_notes
from slipstream.experiment.variants import COSTS, NO_GRAPHS, Arm, Variant
from slipstream.run.context import Context
from slipstream.run.settings import Settings
from slipstream.sources.hlo.reader import program_from_text

SOUND = CONTIGUOUS.replace("bf16[2,512]", "f32[2,512]")
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
    assert [phase for phase, _ in told] == ["compile", "", "verdict"] * times
    assert sum(text.startswith("original · costs: ") for _, text in told) == times
    assert done.notes == receipt.notes
