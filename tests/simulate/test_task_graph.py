"""Our clock against XLA's own: the schedule that its latency hiding scheduler dumps.

XLA counts a cycle for the start and the done of a collective each, and nothing for launches; given
the same costs, both must then find the same time for the body of a loop, and the same waits.
"""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import deviceless
from schedules import MACHINE, NOTHING
from slipstream.analyses.summary import step_times
from slipstream.costs.scheduler_names import looked_up
from slipstream.costs.table import Cost, CostTable, ProgramCosts
from slipstream.machines.machine import Estimate
from slipstream.profile.program import Program
from slipstream.simulate.engine import simulation
from slipstream.sources.hlo.reader import read_program

ROW = re.compile(
    r"instructions \{\s*id: (\d+)\s*(?:start_timestamp_cycles: [\d.e+-]+\s*)?"
    r"(?:end_timestamp_cycles: ([\d.e+-]+))?"
)


def compiled(data: Path, out: Path, dump: Path, costs: Path) -> Program:
    """Compile in a process of its own, which dumps its schedule."""
    flags = f"--xla_dump_to={dump} --xla_dump_latency_hiding_schedule=true"
    arguments = [str(data / "h200_target.txtpb"), str(out), str(costs)]
    done = subprocess.run(
        [sys.executable, deviceless.__file__, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return read_program(out)


def made_up(program: Program) -> dict[str, float]:
    """A cost for every name that the scheduler asks for: long enough that a cycle is little."""
    costs = {}
    for number, instruction in enumerate(looked_up(program)):
        us = 300.0 if instruction.collective is not None else 20.0 + 37 * number % 90
        if instruction.is_start and instruction.collective is None:
            us = 1.0  # XLA counts the cost of an asynchronous slice twice: as work and as latency
        name = instruction.scheduling_name or instruction.name
        costs[name] = 0.0 if instruction.is_done else us
    return costs


def xla_ends(schedule: str, program: Program) -> dict[str, float]:
    """When each loop body ends, by XLA's clock."""
    by_id = {i.unique_id: i for i in program.scheduled}
    bodies = {i.called[0] for i in program.scheduled if i.opcode == "while"}
    found = {}
    for block in schedule.split("computation_schedules {")[1:]:
        rows = ROW.findall(block)
        known = [by_id[int(number)] for number, _ in rows if int(number) in by_id]
        computation = known[0].computation
        if computation in bodies:
            found[computation] = max(float(end or 0) for _, end in rows)
    return found


def test_loop_bodies_take_what_xla_says(data: Path, tmp_path: Path) -> None:
    first = tmp_path / "first.pb"
    deviceless.compiled(data / "h200_target.txtpb", first)
    costs = made_up(read_program(first))
    table = {name: Cost(name, us) for name, us in costs.items()}
    CostTable((ProgramCosts(None, "step", table),)).write(tmp_path / "costs.pb")
    out, dump = tmp_path / "second.pb", tmp_path / "dump"
    program = compiled(data, out, dump, tmp_path / "costs.pb")
    estimates = {
        i.name: Estimate(costs[i.scheduling_name or i.name], "measured")
        for i in program.scheduled
        if (i.scheduling_name or i.name) in costs
    }
    (file,) = dump.glob("*.schedule.txt")
    ends = xla_ends(file.read_text(), program)
    assert len(ends) == 2
    for name, theirs in ends.items():
        body = replace(program, entry=program.computations[name])
        step = simulation(
            body, MACHINE, estimates=estimates, overheads=NOTHING, command_buffers=False
        )
        times = step_times(step.profile)
        assert times.exposed_communication_us > 100  # there are waits to agree on
        assert times.wall_us == pytest.approx(theirs, rel=0.015)
