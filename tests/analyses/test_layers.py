"""Exposed time by layer."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders import STEP, profile, program
from slipstream.analyses.layers import exposed_by_layer
from slipstream.analyses.overlap import overlap
from slipstream.sources.load import load


def test_turns_of_a_loop_are_layers() -> None:
    loop = program(STEP, ["while.1"], {"while.1": (2, ["dot.2", "all-reduce.3"])})
    built = profile().with_program(STEP, loop)
    for wait in (10, 30):
        built.kernel("dot.2", 20).all_reduce(wait, op="all-reduce.3")
    found = exposed_by_layer(built.build())
    shown = [(one.layer, one.number, one.communication_us, one.copy_us) for one in found]
    assert shown == [("turn 0", 0, 10.0, 0.0), ("turn 1", 1, 30.0, 0.0)]


def test_layers_and_the_rest_are_all_that_is_exposed(data: Path) -> None:
    read = load(data / "nccl2_lhs_r0.xplane.pb.gz")
    found, whole = exposed_by_layer(read), overlap(read)
    assert {one.number for one in found} == {-1, 0, 1, 2, 3}
    for kind in ("communication", "copy"):
        ours = sum(getattr(one, f"{kind}_us") for one in found)
        theirs = sum(op.exposed_us for op in whole.ops if op.kind == kind)
        assert ours == pytest.approx(theirs)
