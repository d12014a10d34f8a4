"""Costs in the hands of the real XLA GPU compiler, which needs no GPU (jax-cuda13-plugin)."""

import re

import numpy as np
import pytest

from deviceless import compiled
from slipstream.costs.extract import extract_costs
from slipstream.costs.scheduler_names import looked_up
from slipstream.profile.attribution.attribution import attribute
from slipstream.profile.attribution.launch_sequence import unroll
from slipstream.profile.events import EVENT_COLUMNS, Table, Texts
from slipstream.profile.profile import Device, Host, Lane, Profile, Programs
from slipstream.sources.hlo.reader import read_program
from slipstream.sources.load import load

RUNS = 3


@pytest.fixture(scope="module")
def target(request):
    return request.path.parent.parent / "data" / "h200_target.txtpb"


@pytest.fixture(scope="module")
def program(target, tmp_path_factory):
    out = tmp_path_factory.mktemp("plain") / "program.pb"
    compiled(target, out)
    return read_program(out)


def mock_recording(program, us_of):
    """A profile as if the program had run: one event for each launch of its schedule.

    No GPU ran it, so the times are made up; everything else is the program's own.
    """
    texts = Texts()
    launches = list(unroll(program).launches) * RUNS
    count = len(launches)
    durations = np.array([int(us_of(launch) * 1e6) for launch in launches], np.int64)
    label = np.array([texts.index(launch.instruction) for launch in launches], np.int32)
    columns = {
        "start_ps": np.cumsum(durations) - durations,
        "duration_ps": durations,
        "lane": np.zeros(count, np.int32),
        "name": label,
        "op": label,
        "program": np.full(count, texts.index("jit_step(1)"), np.int32),
        "details": np.zeros(count, np.int32),
        "correlation": np.arange(1, count + 1),
        "graph": np.zeros(count, np.int64),
        "graph_node": np.zeros(count, np.int64),
        "instruction": np.zeros(count, np.int32),
        "execution": np.zeros(count, np.int32),
    }
    return attribute(
        Profile(
            (Host("host", "mock"),),
            (Device("GPU:0", 0, 0, "gpu", "NVIDIA H200"),),
            (Lane("Stream #1", 0, 0),),
            Table(EVENT_COLUMNS, columns, texts.values),
            programs=Programs({"jit_step(1)": lambda: program}),
        )
    )


def schedule(program):
    return {name: [i.name for i in c.instructions] for name, c in program.computations.items()}


def test_every_instruction_is_found_and_the_schedule_changes(program, target, tmp_path):
    profile = mock_recording(program, lambda launch: 900.0 if launch.is_collective else 20.0)
    costs = tmp_path / "costs.pb"
    extract_costs(profile).write(costs)

    log = compiled(target, tmp_path / "again.pb", costs)

    again = read_program(tmp_path / "again.pb")
    assert f"Using PGLE profile from {costs}" in log
    assert "Found profile for module jit_step, using profile guided latency estimator" in log
    assert "Missing" not in log
    assert again.fingerprint == program.fingerprint
    assert schedule(again) != schedule(program)


def test_a_cost_left_out_is_the_one_that_xla_misses(program, target, tmp_path):
    """Shows that the silence of the test above means something."""
    profile = mock_recording(program, lambda launch: 20.0)
    table = extract_costs(profile)
    dropped = next(i.name for i in looked_up(program) if i.opcode == "fusion")
    table.programs[0].costs.pop(dropped)
    costs = tmp_path / "costs.pb"
    table.write(costs)

    log = compiled(target, tmp_path / "again.pb", costs)

    assert "Missing 1 instructions from the profile." in log
    assert re.search(rf"\b{re.escape(dropped)}$", log, re.MULTILINE)


def test_a_folder_by_fingerprint_is_found(program, target, tmp_path):
    profile = mock_recording(program, lambda launch: 20.0)
    extract_costs(profile).write(tmp_path / "folder")

    log = compiled(target, tmp_path / "again.pb", tmp_path / "folder")

    assert f"Using PGLE profile from {tmp_path}/folder/{program.fingerprint}.pb" in log
    assert "Missing" not in log


def test_costs_from_inside_command_buffers_drive_a_compile(data, target, tmp_path):
    """The names are of another program: XLA takes the file, and misses what it does not have."""
    costs = tmp_path / "costs.pb"
    extract_costs(load(data / "off_default.xplane.pb.gz")).write(costs)

    log = compiled(target, tmp_path / "again.pb", costs)

    assert "using profile guided latency estimator" in log
