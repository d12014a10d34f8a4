"""Numbers that once made native code leave its arrays, or a conversion fail: read, or refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from slipstream.cli.main import app
from slipstream.errors import BadInput


def shown(*arguments: str | Path) -> str:
    done = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("name", ["b_large", "b_4G", "max", "neg_span", "two_procs"])
def test_correlation_ids_near_the_largest_number(name: str, hostile: Path) -> None:
    assert "no NVTX ranges" in shown("summary", hostile / f"launch_{name}.sqlite")


def test_sizes_of_values_that_add_up_to_more_than_64_bits(hostile: Path) -> None:
    with pytest.raises(BadInput, match=r"row_wraps\.sqlite"):
        shown("summary", hostile / "row_wraps.sqlite")


def test_the_number_of_a_graph(hostile: Path) -> None:
    assert "step" in shown("summary", hostile / "graph_number_overflow.xplane.pb")


def test_a_negative_cost(hostile: Path) -> None:
    costs = hostile / "neg_cost.pbtxt"
    with pytest.raises(BadInput, match=r"neg_cost\.pbtxt: the cost of ag is -10 µs; expected 0 to"):
        shown("simulate", hostile / "toy.hlo", "--on", "2xH200", "--costs", costs)


def test_billions_of_partitions(hostile: Path) -> None:
    """They are counted, not listed; what else the file lacks may be refused."""
    try:
        shown("simulate", hostile / "part3e9.hlo", "--on", "2xH200")
    except BadInput as error:
        assert "part3e9.hlo" in str(error)
