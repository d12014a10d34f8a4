"""A simulated step is a profile too: every analysis takes it."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from slipstream.analyses.collectives import collectives
from slipstream.analyses.gaps import gaps
from slipstream.analyses.hosts import hosts
from slipstream.analyses.memory import memory
from slipstream.analyses.overlap import overlap
from slipstream.analyses.roofline import roofline
from slipstream.analyses.slack import slack
from slipstream.machines.topology import machine
from slipstream.simulate.engine import simulate
from slipstream.sources.hlo.reader import program_from_text


@pytest.fixture(scope="module")
def simulated():
    data = Path(__file__).parent.parent / "data"
    text = gzip.decompress((data / "nccl2_lhs_r0.hlo.gz").read_bytes()).decode()
    return simulate(program_from_text(text), machine("2xH200"))


def test_overlap_and_slack_of_a_simulated_step(simulated):
    found = overlap(simulated)
    assert found.per_step.exposed_communication_us > 0
    exposed = sum(op.exposed_us for op in found.collectives)
    # Collectives are simulated one at a time.
    assert exposed == pytest.approx(found.per_step.exposed_communication_us, rel=0.01)
    rows = slack(simulated).rows
    assert {row.instruction for row in rows if row.is_zero and row.exposed_us > 0}


def test_the_others_take_a_simulated_step(simulated):
    rows = collectives(simulated).rows
    assert rows and all(row.bytes for row in rows)
    assert 0 < roofline(simulated).mfu < 1
    assert memory(simulated).programs[0].peak_bytes > 0
    assert hosts(simulated).clock == "one"
    idle = gaps(simulated)
    assert set(idle.by_cause) <= {"unknown"}
