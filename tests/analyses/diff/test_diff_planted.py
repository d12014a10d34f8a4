"""Regressions of many kinds, planted into recordings: each is named first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analyses.diff.planting import exposed, renamed, stretched, with_kernel
from schedules import MACHINE, NOTHING, costs, kernel, program
from slipstream.analyses.diff.diff import diff, is_slower_than
from slipstream.profile.profile import Profile
from slipstream.simulate.engine import simulation
from slipstream.sources.load import load

DATA = Path(__file__).parents[2] / "data"


def recording(name: str) -> Profile:
    return load(DATA / f"{name}.xplane.pb.gz")


@pytest.mark.parametrize("instruction", ["fusion.79", "custom-call.13", "fusion.164"])
def test_a_planted_regression_is_named_first(instruction):
    before = recording("off_lhs_nocb")
    found = diff(before, stretched(before, instruction, 1.3))
    first = found.changes[0]
    assert (first.after, first.is_beyond_noise) == ((instruction,), True)
    assert first.change_us == pytest.approx(0.3 * first.before_us)
    assert not any(abs(c.change_us) > 1 for c in found.changes[1:])


@pytest.mark.parametrize("instruction", ["fusion.79", "custom-call.13", "gemm_fusion_dot.24"])
def test_a_planted_regression_in_another_recording_is_named_first(instruction):
    """Noise of a real other run, another schedule, and 15% on one of 116 ops."""
    before, after = recording("off_lhs_nocb"), recording("off_pgle_nocb")
    found = diff(before, stretched(after, instruction, 1.15))
    assert found.changes[0].after == (instruction,)
    assert found.changes[0].is_beyond_noise


def test_clock_drift_is_not_a_regression():
    before = recording("off_lhs_nocb")
    events = before.events
    slower = events.replace(
        start_ps=(events["start_ps"] * 1.04).astype(np.int64),
        duration_ps=(events["duration_ps"] * 1.04).astype(np.int64),
    )
    found = diff(before, stretched(replace(before, events=slower), "custom-call.13", 1.2))
    assert found.drift == pytest.approx(0.04, abs=1e-4)
    assert found.changes[0].after == ("custom-call.13",)
    kernels = [c for c in found.changes[1:] if c.category not in ("host copy", "data movement")]
    assert all(abs(c.excess_us) < 0.01 * c.before_us + 1 for c in kernels)


@pytest.mark.parametrize("instruction", ["fusion.79", "custom-call.13", "gemm_fusion_dot.24"])
def test_names_all_changed_and_one_op_slower(instruction):
    before = recording("off_lhs_nocb")
    after, table = renamed(recording("off_pgle_nocb"), "off_pgle_nocb", seed=7)
    table = {old: new for old, new in table.items() if old != new}
    same = diff(before, after)
    assert (same.before.matched_share, same.after.matched_share) == (1, 1)
    assert not {name for c in same.changes for name in c.before} & set(table.values())
    found = diff(before, stretched(after, table[instruction], 1.15))
    assert found.changes[0].after == (table[instruction],)
    assert found.changes[0].is_beyond_noise


def test_an_op_more():
    before = recording("off_lhs_nocb")
    found = diff(before, with_kernel(recording("off_pgle_nocb"), "checksum.1", "k_sum", 4000))
    first = found.changes[0]
    assert (first.kind, first.before, first.after) == ("new", (), ("checksum.1",))
    assert first.change_us == pytest.approx(4000)
    assert first.is_beyond_noise
    assert found.after.matched_share == pytest.approx(1, abs=0.01)


def test_a_copy_that_nothing_hides_any_more():
    before = recording("off_lhs_nocb")
    hidden = next(c for c in diff(before, before).moves if c.description == "copy to host 134 MB")
    (name,) = hidden.before.instructions
    assert hidden.before.exposed_us < 0.01 * hidden.before.us
    found = diff(before, exposed(recording("off_pgle_nocb"), name))
    first, move = found.changes[0], found.moves[0]
    assert first.description == move.description == "copy to host 134 MB"
    assert first.is_beyond_noise
    # The copy takes as long as before: it is waited for.
    assert first.change_us > 0.5 * move.after.us
    assert move.after.us == pytest.approx(move.before.us, rel=0.1)
    assert is_slower_than(found.verdict, 0.02) is not None


def test_a_fusion_that_was_cut_in_two():
    """Eight ops that stay, one of which got a little slower, and a fusion that became two."""
    line = 'metadata={op_name="jit(f)/OP" source_file="m.py" source_line=LINE}'
    parts = {
        name: line.replace("OP", name).replace("LINE", str(n))
        for n, name in enumerate(("neg", "exp"))
    }
    fusions = f"""%both (x: f32[8]) -> f32[8] {{
  %x = f32[8] parameter(0)
  %n = f32[8] negate(%x), {parts["neg"]}
  ROOT %e = f32[8] exponential(%n), {parts["exp"]}
}}

%one (y: f32[8]) -> f32[8] {{
  %y = f32[8] parameter(0)
  ROOT %m = f32[8] negate(%y), {parts["neg"]}
}}

%two (z: f32[8]) -> f32[8] {{
  %z = f32[8] parameter(0)
  ROOT %d = f32[8] exponential(%z), {parts["exp"]}
}}
"""
    stay = [kernel(f"k{n}", "a" if n == 0 else f"k{n - 1}") for n in range(8)]
    whole = program(
        *stay, "ROOT %f.1 = f32[8] fusion(%k7), kind=kLoop, calls=%both", others=fusions
    )
    cut = program(
        *stay,
        "%f.7 = f32[8] fusion(%k7), kind=kLoop, calls=%one",
        "ROOT %f.8 = f32[8] fusion(%f.7), kind=kLoop, calls=%two",
        others=fusions,
    )
    us = {f"k{n}": 10.0 + n for n in range(8)}
    before, after = (
        simulation(found, MACHINE, estimates=costs(**taken), overheads=NOTHING).profile
        for found, taken in (
            (whole, {**us, "f.1": 10}),
            (cut, {**us, "k3": 14, "f.7": 8, "f.8": 9}),
        )
    )
    found = diff(before, after)
    first, second = found.changes[:2]
    assert (first.kind, first.before, first.after) == ("split", ("f.1",), ("f.7", "f.8"))
    assert first.change_us == pytest.approx(7)
    assert (second.before, second.after) == (("k3",), ("k3",))
    assert (found.before.matched_share, found.after.matched_share) == (1, 1)
