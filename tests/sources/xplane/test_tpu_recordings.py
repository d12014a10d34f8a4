"""Built recordings of real programs of XLA:TPU (`tpu_recording.py`), read by the commands."""

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from builders import Unsigned
from slipstream.analyses.collectives import collectives
from slipstream.analyses.network.network import network
from slipstream.analyses.slack import slack
from slipstream.analyses.summary import step_times
from slipstream.cli.main import app
from slipstream.profile.semantics.names import phase_of
from slipstream.profile.validation import validate
from slipstream.sources.load import load
from tpu_recording import ISSUE_PS, PROGRAM_ID, STEPS, Built

PROGRAMS = {
    "slices": ("v5e_2slices.hlo.gz", "2xv5e:4x4", 2),
    "fsdp": ("v5p_fsdp.hlo.gz", "v5p:2x2x2", 1),
    "tensor": ("v5p_tensor.hlo.pb.gz", "v5p:2x2x1", 1),
}
Recorded = tuple[Built, Path]


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Recorded]:
    folder = tmp_path_factory.mktemp("tpu")
    made = {}
    for name, (program, on, slices) in PROGRAMS.items():
        built = Built.of(program, on)
        made[name] = (built, built.write(folder / name, slices))
    return made


@pytest.fixture(params=PROGRAMS)
def recorded(recordings: dict[str, Recorded], request: pytest.FixtureRequest) -> Recorded:
    return recordings[request.param]


def shown(*arguments: object) -> dict[str, Any]:
    result = CliRunner().invoke(app, [*map(str, arguments), "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.output)
    return found


def test_all_time_belongs_to_an_instruction_its_phase_and_its_source_line(recorded: Recorded):
    built, path = recorded
    validate(load(path))
    found = shown("ops", path)
    assert found["attributed_share"] == 1.0
    steps = shown("summary", path)["steps"]
    assert (steps["count"], steps["basis"]) == (STEPS, "annotations")
    # The core is never idle, and no time counts twice: not a loop's, not what runs beside it.
    total = sum(op["per_step_us"] for op in found["ops"])
    assert total == pytest.approx(built.step_us, rel=1e-6)
    program = built.program
    lines = 0
    for op in found["ops"]:
        one = program.instruction(op["instruction"])
        assert op["program"] == f"{program.name}({PROGRAM_ID})"
        assert op["phase"] == phase_of(program, one)
        if one.source_file:
            assert op["source"] == f"{one.source_file}:{one.source_line}"
            lines += 1
    assert lines > 100
    phases = shown("summary", path)["phases_us"]
    assert sum(phases.values()) == pytest.approx(total)
    assert min(phases[name] for name in ("forward", "backward", "remat")) > 0.1 * total


def test_each_instruction_ran_as_often_and_as_long_as_it_was_built(recorded: Recorded):
    built, path = recorded
    times: dict[str, int] = defaultdict(int)
    often: Counter[str] = Counter()
    for one in built.ops:
        often[one.instruction] += 1
        times[one.instruction] += one.end_ps - one.start_ps
    loops = {one.name for one in built.program.runnable if one.opcode == "while"}
    found = {op["instruction"]: op for op in shown("ops", path)["ops"]}
    assert found.keys() == often.keys()
    for name, op in found.items():
        assert op["per_step_count"] == often[name] == built.program.executions(name)
        expected = 0 if name in loops else times[name] / 1e6
        assert op["per_step_us"] == pytest.approx(expected, abs=1e-5)


def test_exposed_time_is_that_of_the_simulation(recorded: Recorded):
    built, path = recorded
    before, after = step_times(built.step.profile), shown("overlap", path)["per_step_us"]
    issued = sum(one.end_ps - one.start_ps == ISSUE_PS for one in built.ops) * ISSUE_PS / 1e6
    assert after["compute"] == pytest.approx(before.compute_us)
    assert after["idle"] == pytest.approx(before.idle_us)
    # Transfers between slices are no events of the device, so what the core waits for besides
    # them counts as a wait for copies.
    exposed = before.exposed_communication_us + before.exposed_copy_us
    assert after["exposed_communication"] + after["exposed_copy"] == pytest.approx(
        exposed + issued, rel=1e-6
    )
    assert after["exposed_communication"] == pytest.approx(
        before.exposed_communication_us, rel=0.02
    )


def test_no_op_is_exposed_twice(recorded: Recorded):
    built, path = recorded
    names = [op["instruction"] for op in shown("overlap", path)["ops"]]
    dones = [built.program.partner(name) for name in names]
    assert not {done.name for done in dones if done is not None} & set(names)


def test_slack_is_that_of_the_simulation_where_the_recording_shows_an_end(recorded: Recorded):
    built, path = recorded
    found = shown("slack", path)
    rows = {op["instruction"]: op for op in found["ops"]}
    simulated = {row.instruction: row for row in slack(built.step.profile).rows}
    compared = 0
    for name, row in rows.items():
        # In a loop, the simulation also knows the ends of those executions that were hidden; and
        # what waits for a hidden copy could move further than the recording shows.
        known, limit = simulated[name], row["limit"]
        moves = limit in built.program and built.program.instruction(limit).is_start
        if built.program.loop_of(name) is None and limit == known.limit and not moves:
            assert row["slack_us"] == pytest.approx(known.slack_us, abs=1)
            compared += 1
    assert compared > 3
    waits = [wait for wait in built.step.waits if wait.us / wait.times > 1]
    sends = {wait.instruction for wait in waits if wait.instruction.startswith("send")}
    assert {wait.instruction for wait in waits} - sends <= rows.keys()
    # The others ended at a time that the recording doesn't have.
    [note] = found["notes"]
    assert "had ended before the step needed the result" in note


def test_collectives_of_all_forms_have_their_bytes_and_bandwidth(recorded: Recorded):
    built, path = recorded
    expected = {row.instruction: row for row in collectives(built.step.profile).rows}
    found = [row for row in shown("collectives", path)["collectives"] if row["group_size"] != 2]
    assert {row["kind"] for row in found} <= {
        "all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter",
    }  # fmt: skip
    rates = 0
    for row in found:
        simulated = expected[row["instruction"]]
        assert (row["bytes"], row["kind"]) == (simulated.bytes, simulated.kind)
        assert row["count"] % simulated.count == 0
        if row["bandwidth"] is not None:
            # A window also has the time in which another collective used the links.
            assert 0.2 * simulated.bandwidth < row["bandwidth"] < 1.001 * simulated.bandwidth
            rates += 1
    assert rates > 3


def test_transfers_between_slices_have_their_rendezvous_slack_and_bytes(recordings):
    built, path = recordings["slices"]
    before = {one.name: one for one in network(built.step.profile, built.machine).collectives}
    found = shown("network", path, "--on", "2xv5e:4x4")
    after = {one["name"]: one for one in found["collectives"]}
    assert after.keys() == before.keys()
    for name, one in after.items():
        assert one["bytes"] == before[name].bytes
        assert one["transfer_type"] == "ALL_REDUCE"
        # A transfer that had arrived has a done that took no time.
        assert one["recv_done_us"] == pytest.approx(before[name].recv_done_us, abs=0.01)
        assert one["slack_us"] == pytest.approx(before[name].slack_us, abs=5)
    assert found["latency"]["all"]["count"] == 2 * STEPS * len(built.transfers)
    assert {one["link"] for one in found["series"]} == {"dcn", "ici"}
    [ici] = [one for one in found["series"] if one["link"] == "ici"]
    assert ici["peak"] < 4 * built.machine.tpu.link_bandwidth


def test_costs_of_a_recording_simulate_the_same_step(recorded: Recorded):
    built, path = recorded
    arguments = ["simulate", str(built.source), "--on", built.machine.spec]
    plain = shown(*arguments)
    costed = shown(*arguments, "--costs", path)
    assert costed["step_us"] == pytest.approx(plain["step_us"], rel=0.02)
    assert costed["basis"]["measured"] > 0.8


def test_a_chip_is_known_by_the_profilers_name_for_it(recorded: Recorded):
    built, path = recorded
    found = shown("roofline", path)
    assert found["model"] in ("TPU v5 Lite", "TPU v5p")
    assert found["peak_flops"] == built.machine.tpu.peak_flops["bf16"]
    assert 0.2 < found["mfu"] < 0.6


def test_devices_wait_for_each_other_within_their_slice(recordings, tmp_path):
    built, path = recordings["slices"]
    assert shown("collectives", path)["stragglers"] == []
    found = shown("collectives", built.write(tmp_path, slices=2, devices=2))
    program = built.program
    times = Counter()
    for one in built.ops:
        collective = program.instruction(one.instruction).collective
        in_slice = collective is not None and collective.group_size == 16
        times[one.instruction] += in_slice and not program.instruction(one.instruction).is_start
    waited = {wait.instruction: wait.times for wait in built.step.waits}
    beside = sum(
        waited.get(one.name, 0)
        for one in program.scheduled
        if one.is_start and one.collective and one.collective.group_size == 16
    )
    meetings = STEPS * (sum(times.values()) + beside)
    # Nothing aligns the clocks of the other slice with those of the first.
    assert [(one["host"], one["meetings"]) for one in found["stragglers"]] == [
        ("slice-0-host-0", meetings)
    ] * 2
    assert f"{meetings} collectives ran on hosts that share none with slice-0-host-0" in str(found)


def test_sparse_cores_are_not_devices(recordings, tmp_path):
    built, _ = recordings["tensor"]
    made = built.recording()
    plane = made.plane("/device:TPU:0 SparseCore 0", device_type_string="SparseCore")
    plane.line("XLA Ops").event("all-reduce.1", 1_000, 50, program_id=Unsigned(PROGRAM_ID))
    profile = load(made.write(tmp_path / "host.xplane.pb"))
    assert [device.name for device in profile.devices] == ["TPU:0"]
    [warning] = [one for one in profile.warnings if one.code == "other-cores"]
    assert warning.message == ("host.xplane.pb: 1 operations of TPU:0 SparseCore 0 are not counted")
