"""One combination: what ends it, and what bounds decide."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from slipstream.compiler.targets import identify
from slipstream.machines.topology import machine
from slipstream.plan.search.evaluation import Evaluation, Known
from slipstream.plan.search.facts import EvaluationSpec
from slipstream.plan.search.objective import Objective
from slipstream.plan.space.search_space import settings_of
from slipstream.plan.space.space import Combination
from slipstream.results.planning import TIME
from slipstream.tune.outcome import Outcome

TARGET = identify(f"{Path(__file__).parents[1] / 'choices_target.py'}:build")
SPEC = EvaluationSpec(TARGET, machine("1xH100"), Objective())


def settings(**choices):
    return settings_of(Combination(tuple({"data": 1, "tensor": 1, **choices}.items())))


def test_a_combination_that_hangs_is_ended_and_the_next_one_works(monkeypatch):
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 10.0 * os.cpu_count(), 0.0))
    with Evaluation(replace(SPEC, timeout_s=4.0)) as evaluation:
        hung = evaluation.evaluate(settings(goes_wrong="hangs"))
        evaluation._spec = SPEC
        after = evaluation.evaluate(settings(goes_wrong="no"))
    assert hung.status == "hang"
    assert hung.note == (
        "it took more than 4 s while this machine's cores were busy; give it more: --timeout 1m"
    )
    assert after.status == "ok" and after.step_us > 0


@pytest.fixture(scope="module")
def evaluation():
    with Evaluation(SPEC) as found:
        yield found


def test_what_can_not_win_is_not_compiled(evaluation, monkeypatch):
    first = evaluation.evaluate(settings(batch=4))
    assert first.status == "ok" and evaluation._known.best == first.value
    monkeypatch.setattr(evaluation._known, "best", first.value / 1e6)
    monkeypatch.setattr(evaluation._session, "compile", None)
    bounded = evaluation.evaluate(settings(batch=2))
    assert bounded.status == "cannot win" and "at least" in bounded.note
    assert bounded.step_us > 0 and bounded.score("plan") is None


def test_bounds_are_not_above_what_is_predicted(evaluation):
    found = evaluation.evaluate(settings(batch=4))
    facts = evaluation._facts(settings(batch=4))
    assert facts.bounds.step_us <= found.step_us
    assert facts.bounds.memory_bytes <= found.memory_bytes


def test_more_work_than_what_does_not_fit_does_not_fit(evaluation, monkeypatch):
    monkeypatch.setattr(evaluation._session, "compile", None)
    unfit = Outcome("does not fit", memory_bytes=90 * 10**9, details={"work": 64.0})
    known = replace(evaluation._known, unfit=[(settings(batch=2), unfit)])
    monkeypatch.setattr(evaluation, "_known", known)
    found = evaluation.evaluate(settings(batch=3))
    assert found.status == "does not fit"
    assert found.note.startswith("batch=2 does less and needs 90 GB of ")


def test_gradients_of_several_steps_need_a_sum():
    """The weights are 256 × 256 float32; a step of batch 2 does 64 tokens."""
    summed, plain = Objective(TIME, global_batch=128.0), Objective(TIME, global_batch=64.0)
    found = []
    for objective in (plain, summed):
        with Evaluation(replace(SPEC, objective=objective)) as evaluation:
            found.append(evaluation.evaluate(settings(batch=2)))
    assert [one.details["accumulator_bytes"] for one in found] == [0, 256 * 256 * 4]
    assert found[1].memory_bytes - found[0].memory_bytes == 256 * 256 * 4
    assert found[0].step_us == found[1].step_us


def test_more_work_in_a_step_may_need_no_sum(evaluation, monkeypatch):
    details = {"work": 64.0, "accumulator_bytes": 20 * 10**9}
    unfit = Outcome("does not fit", memory_bytes=90 * 10**9, details=details)
    known = replace(evaluation._known, best=None, unfit=[(settings(batch=2), unfit)])
    monkeypatch.setattr(evaluation, "_known", known)
    assert evaluation.evaluate(settings(batch=3)).status == "ok"


def test_less_work_or_two_other_choices_say_nothing():
    unfit = Outcome("does not fit", memory_bytes=90 * 10**9, details={"work": 64.0})
    known = Known(unfit=[(settings(batch=2, width=256), unfit)])
    assert known.smaller_unfit(settings(batch=3, width=256), 96) is not None
    assert known.smaller_unfit(settings(batch=1, width=256), 32) is None
    assert known.smaller_unfit(settings(batch=3, width=128), 96) is None
