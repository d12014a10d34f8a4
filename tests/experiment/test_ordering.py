"""Ranks compile in one order, each variant in its own; without one, that arm alone is left out."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import pytest

from schedules import gather, gathered, kernel, program
from slipstream.compiler.order import Order
from slipstream.consensus.consensus import Consensus
from slipstream.consensus.kvstore import FolderStore
from slipstream.errors import BadInput
from slipstream.experiment import ordering
from slipstream.experiment.ordering import NoOrder, agreed_order
from slipstream.experiment.variants import SCHEDULE, SCHEDULE_NO_GRAPHS

EARLIER = ("a", "g", "k1", "d", "k2")
COMPILED = SimpleNamespace(name="jit_step", platform="cuda")


def step(fingerprint="f00d"):
    found = program(
        kernel("k1", "a"), gather("g", "a"), gathered("d", "g"),
        'ROOT %k2 = f32[8] custom-call(%k1, %d), custom_call_target="f"',
    )  # fmt: skip
    return replace(found, fingerprint=fingerprint)


def order(sequence=EARLIER) -> Order:
    return Order({"main": sequence}, "f00d", "toy")


@pytest.fixture
def ranks(monkeypatch, tmp_path):
    """Two ranks that ask for an order; what each compiles and finds is the test's choice."""
    monkeypatch.setattr(ordering, "is_supported", lambda: True)
    monkeypatch.setattr(ordering, "scheduled_program", lambda *_: step())
    members = [Consensus((0, 1), rank, FolderStore(tmp_path), "job") for rank in (0, 1)]

    def ask(variant=SCHEDULE):
        def one(consensus):
            try:
                return agreed_order(COMPILED, variant, None, tmp_path, consensus, 0)
            except (NoOrder, BadInput) as problem:
                return str(problem)

        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(one, members))

    ask.members = members
    return ask


def test_the_leader_searches_and_all_compile_in_its_order(ranks, monkeypatch):
    found = iter((order(), order(("a", "g", "d", "k1", "k2"))))
    monkeypatch.setattr(ordering, "_searched", lambda *_: next(found))
    assert ranks() == [order(), order()]
    assert ranks(SCHEDULE_NO_GRAPHS) == [order(("a", "g", "d", "k1", "k2"))] * 2


def test_without_an_order_the_comparison_goes_on(ranks, monkeypatch):
    def nothing(*_):
        raise NoOrder("no order was found that is faster")

    monkeypatch.setattr(ordering, "_searched", nothing)
    assert ranks() == ["no order was found that is faster"] * 2
    leader, other = ranks.members
    go_on = {"do": "run", "arm": 1}
    with ThreadPoolExecutor(2) as pool:  # the other rank asks first
        waiting = pool.submit(other.decide, "next")
        assert leader.decide("next", go_on) == waiting.result() == go_on


def test_a_leader_that_cannot_compile_tells_the_others(ranks, monkeypatch):
    def fails(*_):
        raise RuntimeError("XLA is out of memory\nand more")

    monkeypatch.setattr(ordering, "scheduled_program", fails)
    assert ranks() == ["XLA is out of memory"] * 2


def test_an_order_of_another_program_is_refused(ranks, monkeypatch):
    monkeypatch.setattr(ordering, "_searched", lambda *_: replace(order(), fingerprint="beef"))
    assert all("fingerprint beef, and this one has f00d" in said for said in ranks())


def test_an_order_that_breaks_a_dependency_is_refused(ranks, monkeypatch):
    monkeypatch.setattr(ordering, "_searched", lambda *_: order(("a", "k1", "k2", "g", "d")))
    assert all("has k2 before d, which it needs" in said for said in ranks())
