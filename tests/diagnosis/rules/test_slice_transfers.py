"""Steps of two slices with one planted trouble each: `diagnose` names it first."""

import pytest

from slice_programs import COPIED, HIDDEN, MACHINE, TOO_LARGE, TOO_LATE, last, slice_program
from slipstream.diagnosis.diagnose import diagnose
from slipstream.machines.topology import machine
from slipstream.results.diagnosis import Diagnosis
from slipstream.simulate.engine import simulate


def diagnosed(body: str, rows: int, gradient: str = "g") -> Diagnosis:
    return diagnose(simulate(slice_program(body, rows, gradient), machine(MACHINE)))


@pytest.mark.parametrize(
    ("body", "rows", "gradient", "rule", "named"),
    [
        (TOO_LATE, 2048, "g", "slice-late", "send"),
        (TOO_LARGE, 20480, "g", "slice-bandwidth", "send"),
        (COPIED, 2048, "copied", "slice-copies", "copied"),
    ],
)
def test_the_planted_trouble_is_the_first(
    body: str, rows: int, gradient: str, rule: str, named: str
) -> None:
    first = diagnosed(body + last(3), rows, gradient).findings[0]
    assert first.rule == rule
    assert first.exhibits[0].name == named
    assert first.changes


@pytest.mark.parametrize(
    ("body", "rows", "said"),
    [
        (TOO_LATE, 2048, "no bandwidth would hide them."),
        (TOO_LARGE, 20480, "from 279 Gb/s on they would be hidden."),
    ],
)
def test_which_network_would_hide_them(body: str, rows: int, said: str) -> None:
    first = diagnosed(body + last(3), rows).findings[0]
    assert "The machine has 100 Gb/s per host and 250 µs of latency; " in first.evidence
    assert first.evidence.endswith(said)


def test_a_transfer_that_is_hidden_is_no_trouble() -> None:
    assert not diagnosed(HIDDEN + last(3), 2048).findings


@pytest.mark.parametrize(
    ("kind", "advice"),
    [("ALL_REDUCE", "all_reduce_opt"), ("ALL_GATHER", "NamedSharding"), ("ONE_TO_ONE", "ppermute")],
)
def test_what_helps_depends_on_what_is_sent(kind: str, advice: str) -> None:
    body = TOO_LATE.replace("ALL_REDUCE", kind)
    first = diagnosed(body + last(3), 2048).findings[0]
    assert advice in first.changes[0].text
