"""A step in which every gather is listed right where it is needed: two of three can be hidden."""

import pytest

from schedules import costs, gather, gathered, kernel, program
from slipstream.machines.machine import Estimate
from slipstream.profile.program import Program


def both(name: str, first: str, second: str, root: bool = False) -> str:
    """A kernel with two operands."""
    return (
        f'{"ROOT " * root}%{name} = f32[8] custom-call(%{first}, %{second}), custom_call_target="f"'
    )


@pytest.fixture
def late() -> tuple[Program, dict[str, Estimate]]:
    """Each of three kernels needs a gather that only the parameter is needed for."""
    found = program(
        gather("g1", "a"), gathered("d1", "g1"), both("k1", "a", "d1"),
        gather("g2", "a"), gathered("d2", "g2"), both("k2", "k1", "d2"),
        gather("g3", "a"), gathered("d3", "g3"), both("k3", "k2", "d3", root=True),
    )  # fmt: skip
    return found, costs(g1=10, g2=10, g3=10, k1=20, k2=20, k3=20)


@pytest.fixture
def early() -> tuple[Program, dict[str, Estimate]]:
    """Two gathers are hidden beside the first kernel: all that they write is alive at once."""
    found = program(
        gather("g1", "a"), gather("g2", "a"), kernel("k0", "a"),
        gathered("d1", "g1"), both("k1", "k0", "d1"),
        gathered("d2", "g2"), both("k2", "k1", "d2", root=True),
    )  # fmt: skip
    return found, costs(g1=10, g2=10, k0=40, k1=1, k2=1)
