"""The order of combinations, and what ends the search for it."""

import time
from pathlib import Path

import pytest

from slipstream.machines.topology import machine
from slipstream.plan.plan_folder import PlanConfig
from slipstream.plan.search import search
from slipstream.plan.search.objective import Objective
from slipstream.plan.search.search import MachineSearch
from slipstream.plan.space.choices import Choice

CHOICES = (Choice("batch", tuple(range(40)), default=7, has_default=True),)


class Bounded:
    """Promises by batch; no compiler."""

    def __init__(self, promised, *, is_interrupted=False):
        self._promised = promised
        self._is_interrupted = is_interrupted

    def promise(self, settings):
        if self._is_interrupted:
            raise KeyboardInterrupt
        self._promised.append(settings["batch"])
        return -float(settings["batch"]), 0.0


def search_of(choices=CHOICES):
    config = PlanConfig("train.py:build", ("1xH100",), choices, Objective(), jaxlib="0")
    return MachineSearch(
        Path("nowhere"), config, machine("1xH100"), lambda *_: None, lambda text: None
    )


def batches(suggestions):
    return [int(one.settings["batch"]) for one in suggestions]


def test_the_default_comes_first_then_the_most_promising():
    found = search_of()._suggestions([Bounded([]), Bounded([])], set(), float("inf"))
    assert batches(found) == [7, *(n for n in reversed(range(40)) if n != 7)]


def test_combinations_without_a_bound_in_time_come_last():
    found = search_of()._suggestions([Bounded([])], set(), float("-inf"))
    assert batches(found) == [7, *(n for n in range(40) if n != 7)]


def test_of_many_combinations_a_sample_is_tried_first(monkeypatch):
    monkeypatch.setattr(search, "MOST_LISTED", 20)
    monkeypatch.setattr(search, "SAMPLED", 5)
    found = search_of()._suggestions([Bounded([])], set(), float("inf"))
    assert len(found) in (5, 6) and batches(found)[0] == 7


def test_ctrl_c_ends_the_bounds():
    promised = []

    class Slow(Bounded):
        def promise(self, settings):
            time.sleep(0.2)  # 200 s for all, if nothing stops it
            return super().promise(settings)

    many = (Choice("batch", tuple(range(1000))),)
    evaluations = [Bounded(promised, is_interrupted=True), Slow(promised)]
    with pytest.raises(KeyboardInterrupt):
        search_of(many)._suggestions(evaluations, set(), float("inf"))
    assert len(promised) < 999
