"""Steps of real programs for TPUs (tests/record/tpu_programs.py), simulated."""

import gzip
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from recorded import DATA
from slipstream.analyses.bounds import bounds
from slipstream.analyses.diff.diff import diff
from slipstream.analyses.network.network import network
from slipstream.analyses.slack import slack
from slipstream.analyses.summary import step_times
from slipstream.diagnosis.diagnose import diagnose
from slipstream.diagnosis.evidence import Evidence
from slipstream.diagnosis.rules import zero_slack
from slipstream.machines.jitter import slowest
from slipstream.machines.machine import Machine
from slipstream.machines.topology import machine
from slipstream.outputs.html.sections.network import network_section
from slipstream.outputs.html.sections.prediction import prediction_section
from slipstream.outputs.terminal.compiled.predict import render_predictions
from slipstream.outputs.xplane_writer import write_timeline
from slipstream.profile.program import Program
from slipstream.profile.semantics.backend_config import estimated_cycles
from slipstream.profile.validation import validate
from slipstream.results.prediction import Prediction
from slipstream.simulate.engine import Simulation, simulation
from slipstream.simulate.prediction import predict
from slipstream.sources.hlo.reader import read_program
from slipstream.sources.load import load

SLICES = ("v5e_2slices.hlo.gz", "2xv5e:4x4")
PROGRAMS = [SLICES, ("v5p_fsdp.hlo.gz", "v5p:2x2x2"), ("v5p_tensor.hlo.pb.gz", "v5p:2x2x1")]


@cache
def step_of(name: str, spec: str) -> tuple[Program, Machine, Simulation]:
    program, on = read_program(DATA / "tpu" / name), machine(spec)
    return program, on, simulation(program, on)


@cache
def prediction_of(name: str, spec: str) -> Prediction:
    program, on, _ = step_of(name, spec)
    return predict(program, on)


@pytest.mark.parametrize(("name", "spec"), PROGRAMS)
def test_a_step_is_between_its_bound_and_the_sum_of_its_parts(name: str, spec: str) -> None:
    program, on, step = step_of(name, spec)
    validate(step.profile)
    least = bounds(program, step.estimates, on).least_us
    total = sum(step.estimates[one].us * count for one, count in step.executions.items())
    found = prediction_of(name, spec)
    assert least <= found.step_us < total
    assert found.low_us < found.step_us < found.high_us
    assert 0.1 < (found.mfu or 0) < 1
    # What has no model is named, with its share.
    assert found.basis["compiler"] + found.basis["modelled"] > 0.99
    assert found.basis["compiler"] > 0.4
    assert {kernel.name for kernel in found.unknown} == {
        "gather p.embedding",
        "gather, scatter ∂p.embedding",
        "sort",
    }


def test_the_screen_says_what_the_compiler_estimated() -> None:
    lines = render_predictions([prediction_of(*SLICES)]).plain.splitlines()
    assert "basis of the times: 63% XLA's own cycles, 37% modelled, <1% default" in lines
    page = str(prediction_section([prediction_of(*SLICES)]).body)
    assert "63% XLA&#x27;s own cycles" in page or "63% XLA's own cycles" in page


def test_the_compilers_cycles_are_times_of_the_chips_clock() -> None:
    program, on, step = step_of(*SLICES)
    product = program.instruction("fusion.177")
    cycles = estimated_cycles(product)
    assert cycles == 4_172_128
    found = step.estimates["fusion.177"]
    # Slices wait for each other.
    assert found.us == pytest.approx(cycles / on.tpu.clock_hz * 1e6 * slowest(on))
    assert (found.basis, found.kind) == ("compiler", "gemm")
    assert found.why == "4,172,128 cycles at 1.5 GHz, XLA's estimate"


def test_a_recv_done_waits_for_its_send() -> None:
    program, on, step = step_of(*SLICES)
    events = step.profile.events

    def times(name: str) -> list[tuple[int, int, str]]:
        rows = [row for row in range(len(events)) if events.text("instruction", row) == name]
        return sorted(
            (
                int(events["start_ps"][row]),
                int(events["start_ps"][row] + events["duration_ps"][row]),
                step.profile.lanes[int(events["lane"][row])].role,
            )
            for row in rows
        )

    for rendezvous in ("all-reduce.34_0", "all-reduce.11_0"):
        [send, recv] = [
            one
            for one in program.scheduled
            if one.attributes.get("_xla_host_transfer_rendezvous") == rendezvous
        ]
        if send.opcode == "recv":
            send, recv = recv, send
        issued, transfer = times(send.name)
        assert {issued[2], transfer[2]} == {"ops", "async"}
        arrived = max(end for _, end, _ in (issued, transfer))
        done = program.partner(recv.name)
        assert done is not None
        [(_, ended, role)] = times(done.name)
        assert role == "ops"
        assert ended >= arrived
    alone_us = 250 + 8_192_000 / 3.125e9 * 1e6
    assert step.estimates["send.6"].us == pytest.approx(alone_us * slowest(on))
    assert step.estimates["recv.6"].us == 0


def test_a_slower_network_between_slices_shows() -> None:
    program, on, step = step_of(*SLICES)
    slow = replace(on, network=replace(on.network, bandwidth=on.network.bandwidth / 10))
    slower = prediction_of(*SLICES)
    assert predict(program, slow).step_us > 1.2 * slower.step_us
    assert step.estimates["fusion.177"].us == simulation(program, slow).estimates["fusion.177"].us


def test_collectives_on_other_axes_run_beside_each_other() -> None:
    """Both directions of a ring: XLA starts two permutations at once."""
    program, _, step = step_of("v5p_fsdp.hlo.gz", "v5p:2x2x2")
    events = step.profile.events
    ran = []
    for name in ("collective-permute-start.4", "collective-permute-start.6"):
        assert program.instruction(name).is_start
        rows = [row for row in range(len(events)) if events.text("instruction", row) == name]
        start, length = (int(events[c][rows[0]]) for c in ("start_ps", "duration_ps"))
        assert length / 1e6 >= 0.999 * step.estimates[name].us
        ran.append((start, start + length))
    (first, ended), (second, _) = sorted(ran)
    assert first <= second < ended


def test_slack_is_that_of_transfers_not_of_the_operations_that_await_them() -> None:
    program, _, step = step_of(*SLICES)
    found = {row.instruction: row for row in slack(step.profile).rows}
    # The done of a chain decides, not the fusions that carry its state.
    assert found["async-collective-start.4"].limit == "fusion.485"
    # What a send brings arrives with the recv-done of the same collective.
    assert found["send.10"].limit == "convert_dynamic-update-slice_fusion.6"
    assert found["send.10"].is_zero
    assert found["send.6"].slack_us > 50_000
    waits = [name for name in found if program.instruction(name).is_done]
    assert not waits
    assert not [name for name in found if name.startswith("recv")]


def test_what_reads_profiles_reads_a_simulated_step_of_a_tpu() -> None:
    _, on, step = step_of(*SLICES)
    compared = diff(step.profile, step.profile)
    assert (compared.reordered, compared.before.step_us) == (0, compared.after.step_us)
    assert "ICI" in str(network_section(network(step.profile, on)).body)
    found = diagnose(step.profile)
    assert found.findings[0].rule == "zero-slack"
    # XLA:TPU takes no costs, so nothing may advise to measure them.
    evidence = Evidence(step.profile)
    remedies = zero_slack._changes(evidence, list(evidence.slack.rows), 1000.0)
    assert remedies
    assert all("slipstream run" not in one.text for one in remedies)


def test_a_written_timeline_is_the_same_step(tmp_path: Path) -> None:
    program, on, step = step_of(*SLICES)
    text = (DATA / "tpu" / SLICES[0]).read_bytes()
    path = write_timeline(step.profile, tmp_path / "step.xplane.pb", gzip.decompress(text))
    profile = load(path)
    validate(profile)
    assert len(profile.steps) == 1
    assert len(profile.events) == len(step.profile.events)
    assert profile.devices[0].model == "TPU v5 lite"
    assert np.array_equal(
        np.sort(profile.events["duration_ps"][:]), np.sort(step.profile.events["duration_ps"][:])
    )
    before, after = step_times(step.profile), step_times(profile)
    assert after.exposed_communication_us == pytest.approx(before.exposed_communication_us)
    found = network(profile, on)
    assert {one.link for one in found.series} == {"ici", "dcn"}
    assert len(found.collectives) == 13
    assert {one.transfer_type for one in found.collectives} == {"ALL_REDUCE"}
    waited = {one.name: one for one in found.collectives}["all-reduce.34_0"]
    assert waited.bytes == 768 * 8 * 128 * 2
    assert waited.recv_done_us > waited.slack_us


def test_slices_and_copies_to_vmem_run_beside_the_cores() -> None:
    """Text has `slice-start` where protos have the slice inside: both are DMAs."""
    _, _, step = step_of(*SLICES)
    profile = step.profile
    rows = [
        row for row, lane in enumerate(profile.events["lane"]) if profile.lanes[lane].role == "ops"
    ]
    start, length = (profile.events[column][rows] for column in ("start_ps", "duration_ps"))
    # Every wait of the cores is a done's: nothing else keeps them from their next operation.
    assert np.array_equal(start[1:], (start + length)[:-1])
