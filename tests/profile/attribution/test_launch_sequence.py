"""What a program launches, with loops unrolled."""

from __future__ import annotations

import pytest

from builders import STEP, program
from slipstream.profile.attribution import launch_sequence
from slipstream.profile.attribution.launch_sequence import unroll


def test_loops_are_unrolled_by_their_trip_counts() -> None:
    found = unroll(program(STEP, ["dot.1", "while.1"], {"while.1": (3, ["add.1"])}))
    assert [one.instruction for one in found.launches] == ["dot.1", "add.1", "add.1", "add.1"]


@pytest.mark.parametrize("body", [[], ["add.1"]])
def test_a_trip_count_may_be_any_that_a_program_has(
    body: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch_sequence, "MAX_LAUNCHES", 5)
    found = unroll(program(STEP, ["dot.1", "while.1"], {"while.1": (2**40, body)}))
    assert len(found.launches) == (6 if body else 1)
