"""Costs for a program's instructions, and what they rest on."""

import math
from dataclasses import replace

import pytest

from schedules import MACHINE, gather, gathered, kernel, program
from slipstream.costs.table import Cost, CostTable, ProgramCosts
from slipstream.machines.jitter import slowest
from slipstream.machines.machine import Estimate
from slipstream.simulate import costing as module
from slipstream.simulate.costing import basis_shares, costing


def table(**us: float) -> CostTable:
    costs = {name: Cost(name, time) for name, time in us.items()}
    return CostTable((ProgramCosts(None, "toy", costs),))


@pytest.fixture(autouse=True)
def models(monkeypatch: pytest.MonkeyPatch) -> None:
    """What isn't measured costs 1000 µs."""
    monkeypatch.setattr(module, "modelled", lambda *_: Estimate(1000.0, "modelled", "other"))


SOURCE = program(
    kernel("b", "a"),
    gather("g", "b"),
    gathered("gd", "g"),
    "ROOT %c = f32[16] negate(%gd)",
)


def test_measured_costs_come_first_by_name() -> None:
    found = costing(SOURCE, MACHINE, table(b=2, g=30))
    assert {name: (e.us, e.basis) for name, e in found.items()} == {
        "b": (2, "measured"),
        "g": (30, "measured"),
        "c": (1000 * slowest(MACHINE), "modelled"),
    }
    assert found["g"].kind == "collective"
    shares = basis_shares({**found, "c": Estimate(1000, "modelled")}, {"b": 1, "g": 1, "c": 2})
    assert shares == pytest.approx({"measured": 32 / 2032, "modelled": 2000 / 2032})
    assert list(shares) == ["measured", "modelled"]


def test_modelled_kernels_are_those_of_the_slowest_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """All wait for it where they communicate; collectives themselves have no slowest device."""
    kinds = {"g": "collective"}
    monkeypatch.setattr(
        module,
        "modelled",
        lambda p, m, i, t: Estimate(1000.0, "modelled", kinds.get(i.name, "other")),
    )
    many = replace(MACHINE, hosts=64, gpus_per_host=8)
    found = {name: e.us / 1000 for name, e in costing(SOURCE, many, None).items()}
    assert found == {"b": slowest(many), "g": 1, "c": slowest(many)}
    assert slowest(many) > 1.03
    alone = costing(program(kernel("b", "a", root=True)), many, None)
    assert {name: e.us for name, e in alone.items()} == {"b": 1000}


def test_renamed_instructions_are_found_by_what_they_compute() -> None:
    """The names of b and c are exchanged, and b is there twice."""
    renamed = program(
        kernel("c", "a"),
        gather("g.7", "c"),
        gathered("gd", "g.7"),
        kernel("b2", "c"),
        "ROOT %b = f32[16] negate(%gd)",
    )
    found = costing(renamed, MACHINE, table(b=2, g=30, c=5), SOURCE)
    assert {name: e.us for name, e in found.items()} == {"c": 2, "g.7": 30, "b2": 2, "b": 5}


def test_without_the_measured_program_costs_match_by_name() -> None:
    renamed = program(kernel("c", "a"), kernel("x", "c", root=True))
    found = costing(renamed, MACHINE, table(b=2, c=5))
    assert {name: e.us for name, e in found.items()} == {"c": 5, "x": 1000}


def test_work_that_was_not_measured_is_modelled() -> None:
    other = program("ROOT %b = f32[8] exponential(%a)")
    assert costing(other, MACHINE, table(b=2))["b"].basis == "measured"  # the name is all we know
    found = costing(other, MACHINE, table(), SOURCE)
    assert found["b"] == Estimate(1000.0, "modelled", "other")


def test_models_are_scaled_by_what_the_recording_shows() -> None:
    """Two kernels of its kind took 700 µs each, and the model says 1000."""
    other = program("ROOT %x = f32[8] exponential(%a)")
    found = costing(other, MACHINE, table(b=700, c=700), SOURCE)
    assert (found["x"].us, found["x"].basis) == (pytest.approx(728, abs=1), "calibrated")
    assert found["x"].why.endswith("× 0.73, like the recorded loop kernels")
    slow = costing(other, MACHINE, table(b=1e-3, c=1e-3), SOURCE)
    assert slow["x"].us == pytest.approx(1000, rel=0.01)


def test_a_scale_counts_more_if_kernels_agree_and_are_long() -> None:
    log = math.log(0.7)
    many = module._scale([(log, 500.0)] * 20)
    assert many == pytest.approx(0.7, rel=0.01)
    assert many < module._scale([(log, 500.0)] * 2) < 0.75
    # A kernel of two microseconds mostly starts, and says little about long ones.
    assert 0.95 < module._scale([(log, 2.0)] * 2) < 1
    # One slow kernel among four that the model knows is about that kernel, not the machine.
    odd = [(math.log(1.8), 2000.0), (0.0, 300.0), (0.0, 500.0), (0.0, 400.0)]
    assert 1 < module._scale(odd) < 1.12
    assert module._scale([(9.0, 500.0)] * 99) == module.MOST_SCALE
