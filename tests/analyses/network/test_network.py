"""What links carry: known answers, plain twins, recordings, and Megascale's problems in a mock."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import profile as build
from megascale_builder import (
    CHUNKS,
    EXPECTED,
    GBPS,
    HEALTHY,
    PROBLEMS,
    STEPS,
    Mock,
    megascale_profile,
    program_text,
)
from schedules import (
    GPU,
    MACHINE,
    NOTHING,
    copied,
    costs,
    gather,
    gathered,
    kernel,
    program,
    to_host,
)
from slipstream.analyses.network.flows import Flow, Rates, device_flows, machine_of
from slipstream.analyses.network.links import BINS
from slipstream.analyses.network.network import network
from slipstream.machines.machine import Machine
from slipstream.machines.tpu.slices import sent_share
from slipstream.profile.profile import Profile
from slipstream.simulate.engine import simulation
from slipstream.sources.hlo.reader import program_from_text
from slipstream.sources.load import load

DATA = Path(__file__).parents[2] / "data"


def recording(name: str) -> Profile:
    return load(DATA / f"{name}.xplane.pb.gz")


# Rates.


def flow(*events: tuple[int, int, int]) -> Flow:
    starts, lengths, sizes = (np.array(column, np.int64) for column in zip(*events, strict=True))
    return Flow("link", "out", "x", "", "", np.zeros(len(events), np.int64), starts, lengths, sizes)


def plain_moved(events: list[tuple[int, int, int]], edges: list[int]) -> list[float]:
    """Bytes between edges, event by event."""
    moved = [0.0] * (len(edges) - 1)
    for start, length, size in events:
        for i, (a, b) in enumerate(zip(edges, edges[1:], strict=False)):
            moved[i] += size * max(0, min(b, start + length) - max(a, start)) / length
    return moved


events = st.lists(
    st.tuples(st.integers(0, 500), st.integers(1, 200), st.integers(1, 10_000)),
    min_size=1,
    max_size=12,
)


@given(events, st.lists(st.integers(0, 800), min_size=2, max_size=9, unique=True))
def test_bytes_over_time(found, edges):
    edges = sorted(edges)
    moved = Rates.of([flow(*found)]).moved(np.array(edges, np.float64))
    assert moved.tolist() == pytest.approx(plain_moved(found, edges), abs=1e-6)


@given(events, st.floats(0.1, 200))
def test_where_a_rate_is_reached(found, least):
    times = sorted({t for start, length, _ in found for t in (start, start + length)})
    expected = 0.0
    for a, b in zip(times, times[1:], strict=False):
        rate = sum(size / length for start, length, size in found if start <= a < start + length)
        if abs(rate - least) < 1e-6:
            return  # too near to call
        expected += (b - a) * (rate >= least)
    stretches = Rates.of([flow(*found)]).above(least)
    assert sum(b - a for a, b in stretches) == pytest.approx(expected)


# Links.


def step_with(*groups: str, machine: Machine = MACHINE) -> Profile:
    """An all-gather that 10 µs of 40 hide, and a copy to the host."""
    found = program(
        gather("g", "a").replace("{{0,1}}", groups[0] if groups else "{{0,1}}"),
        kernel("b", "a"),
        gathered("gd", "g"),
        to_host("s", "b"),
        copied("sd", "s", True),
        "ROOT %e = f32[8] add(%b, %b)",
    )
    return simulation(
        found, machine, estimates=costs(g=40, b=10, s=8, e=2), overheads=NOTHING
    ).profile


@pytest.mark.parametrize(("capacity", "notes"), [(8e6, 0), (4e6, 0), (3e6, 1)])
def test_a_rate_that_the_link_cannot_carry_is_doubted(capacity, notes):
    machine = replace(MACHINE, chip=replace(GPU, link_bandwidth=1e6, host_bandwidth=capacity))
    doubts = [note for note in network(step_with(), machine).notes if "is more than" in note]
    assert len(doubts) == notes
    assert all(note.startswith("host, to host: 4 MB/s at the busiest moment") for note in doubts)


def test_rates_and_regions_by_hand():
    # 64 bytes of result, half of them from the other: 32 bytes in 40 µs; the copy is 32 in 8.
    machine = replace(MACHINE, chip=replace(GPU, link_bandwidth=1e6, host_bandwidth=8e6))
    found = network(step_with(), machine)
    assert (found.steps, found.step_us, found.bin_us) == (1, 50, pytest.approx(50 / BINS))
    rows = {(s.link, s.direction): s for s in found.series}
    assert set(rows) == {("link", "each way"), ("host", "to host")}
    link, host = rows["link", "each way"], rows["host", "to host"]
    assert (link.per_step_bytes, link.peak) == (pytest.approx(32), pytest.approx(0.8e6))
    assert (link.mean, link.demand) == (pytest.approx(32 / 50e-6), pytest.approx(0.64))
    assert (link.active_share, link.bound_share) == (pytest.approx(0.8), pytest.approx(0.8))
    assert np.mean(link.rates) == pytest.approx(link.mean)
    assert (host.peak, host.capacity) == (pytest.approx(4e6), 8e6)
    assert host.bound_share == 0
    (region,) = found.regions
    assert (region.link, region.ops) == ("link", ("g",))
    assert (region.start_us, region.end_us, region.exposed_us) == (0, 40, 30)
    assert region.share == pytest.approx(0.8)
    assert (found.latency, found.collectives, found.troubles) == (None, (), ())


def test_groups_across_hosts_use_the_network():
    inside = replace(MACHINE, hosts=2)
    for groups, link in (("{{0,1},{2,3}}", "link"), ("{{0,2},{1,3}}", "network")):
        flows = device_flows(step_with(groups, machine=inside), inside)
        assert {one.link for one in flows} == {link, "host"}
    # All four: a ring leaves each host once, so that one of two GPUs sends over the network.
    flows = device_flows(step_with("{{0,1,2,3}}", machine=inside), inside)
    parts = {one.link: one.bytes.sum() for one in flows if one.link != "host"}
    assert parts == {"network": pytest.approx(24), "link": pytest.approx(24)}
    found = network(step_with("{{0,2},{1,3}}", machine=inside), inside)
    series = next(s for s in found.series if s.link == "network")
    assert (series.capacity, series.capacity_of) == (1e10, "infiniband, one GPU's part")


def test_several_kernels_share_the_bytes_of_one_execution():
    made = build()
    for number in range(2):
        made = made.annotation(number, 1000 * number, 500).at(1000 * number)
        made = made.kernel("dot.1", 50).all_reduce(30).all_reduce(10).execution_of()
    found = network(made.build())
    (series,) = found.series
    # f32[8] is 32 bytes; of a group of unknown size, two: 2 (2-1)/2 of them; one execution a step.
    assert series.per_step_bytes == pytest.approx(32)


def test_host_copies_of_a_recording():
    """Eight layers of 134 MB each way; what is hidden limits nothing."""
    found = network(recording("off_lhs_nocb"))
    rows = {s.direction: s for s in found.series}
    size = 16 * 1024 * 4096 * 2
    assert {d: s.per_step_bytes for d, s in rows.items()} == {
        "to device": pytest.approx(8 * size, rel=1e-6),
        "to host": pytest.approx(8 * size, rel=1e-6),
    }
    assert found.machine == "1x1xH200"
    assert 45e9 < rows["to host"].peak < 64e9
    assert {(r.direction, r.ops) for r in found.regions} == {
        ("to device", ("wrapped_dynamic-slice",))
    }
    assert sum(r.exposed_us for r in found.regions) / 3 == pytest.approx(20_276, rel=0.02)
    serial = network(recording("off_default"))
    assert {r.direction for r in serial.regions} == {"to device", "to host"}


def test_collectives_of_a_recording():
    profile = recording("nccl2_lhs_r0")
    assert machine_of(profile).devices == 2
    found = network(profile)
    (series,) = (s for s in found.series if s.link == "link")
    program = profile.programs["jit_train_step(605)"]
    expected = 0.0
    for one in program.scheduled:
        if one.collective is not None and not one.is_done:
            factor = 1.0 if one.collective.kind == "all-reduce" else 0.5
            expected += one.collective.bytes * factor * program.executions(one.name)
    assert series.per_step_bytes == pytest.approx(expected, rel=0.01)
    assert not found.regions and "name the machine with --on" in found.notes[0]


def test_nothing_at_all():
    found = network(build().build())
    assert (found.series, found.troubles, found.regions) == ((), (), ())


# Megascale, in a mock.


def test_the_mock_s_program_has_its_marks():
    text = program_text(HEALTHY)
    found = program_from_text(text)
    send = found.instruction("send.1")
    assert send.attributes["_xla_host_transfer_rendezvous"] == "all-reduce.1"
    assert send.attributes["_xla_megascale_transfer_type"] == "ALL_REDUCE"
    assert found.partner("recv.2").name == "recv-done.2"


def test_nothing_is_found_in_the_healthy_one(tmp_path):
    profile = megascale_profile(tmp_path)
    for gbps in (None, GBPS):
        assert network(profile, slice_gbps=gbps).troubles == ()


@pytest.mark.parametrize("seed", range(4))
def test_other_sizes_are_as_healthy_and_as_troubled(seed, tmp_path):
    pick = random.Random(seed)
    us = pick.uniform(80, 300)
    other = replace(
        HEALTHY,
        wait_us=pick.uniform(1, 30),
        slack_us=pick.uniform(1_500, 4_000),
        transfer_us=us,
        apart_us=us,
        buffer_bytes=pick.choice((1, 2, 4, 8)) * 1_000_000,
    )
    assert network(megascale_profile(tmp_path, other), slice_gbps=GBPS).troubles == ()
    for name, problem in PROBLEMS.items():
        planted = {k: v for k, v in vars(problem).items() if v != getattr(HEALTHY, k)}
        found = network(
            megascale_profile(tmp_path, replace(other, **planted)), slice_gbps=GBPS
        ).troubles
        assert name.partition(",")[0] in {one.code for one in found}


@pytest.mark.parametrize("name", PROBLEMS)
def test_each_trouble_is_found(name, tmp_path):
    found = network(megascale_profile(tmp_path, PROBLEMS[name]), slice_gbps=GBPS)
    assert {problem.code for problem in found.troubles} == EXPECTED[name]
    problem = next(t for t in found.troubles if t.code == name.partition(",")[0])
    assert problem.per_step_us > 0 and problem.source.startswith("https://openxla.org/")
    words = {
        "map-dma-buffer": "--megascale_grpc_premap_memory_bytes",
        "memory-copies": "--megascale_grpc_premap_memory_bytes",
        "recv-done": "overlap",
        "small-slack": "increase overlap",
        "bandwidth": "larger batch",
        "latency": "TCP",
    }
    assert words[problem.code] in problem.remedy


@pytest.mark.parametrize("name", ["bandwidth", "latency, always"])
def test_what_needs_the_network_s_rate_is_not_guessed(name, tmp_path):
    found = network(megascale_profile(tmp_path, PROBLEMS[name]))
    assert {problem.code for problem in found.troubles} == {"recv-done"}
    assert any("--slice-gbps" in note for note in found.notes)


def test_slack_and_bytes_by_hand(tmp_path):
    mock = Mock(slack_us=2_000, wait_us=40)
    found = network(megascale_profile(tmp_path, mock))
    first = next(one for one in found.collectives if one.name == "all-reduce.1")
    # From the send to the recv-done: 1 + 1 + 2000 + 1, of which three are the transfers' own.
    assert first.slack_us == pytest.approx(2_000)
    assert first.observed_us == pytest.approx(2_043)
    assert (first.send_us, first.recv_done_us) == (pytest.approx(1), pytest.approx(40))
    assert (first.stall_us, first.per_step_us) == (pytest.approx(43), pytest.approx(43))
    assert (first.occurrences, first.transfer_type) == (STEPS, "ALL_REDUCE")
    # Two slices: 2 (2-1)/2 of the buffer.
    assert first.bytes == mock.buffer_bytes
    assert first.required_gbps == pytest.approx(mock.buffer_bytes * 8 / 2_000 / 1e3)


@pytest.mark.parametrize(
    ("kind", "share"),
    [
        ("ALL_GATHER", 0.75),
        ("ALL_REDUCE", 1.5),
        ("ALL_TO_ALL", 0.75),
        ("REDUCE_SCATTER", 3),
        ("ONE_TO_ONE", 1),
    ],
)
def test_bytes_of_each_type(kind, share):
    """As XProf's slack analysis counts them (xspace_to_dcn_slack_analysis.cc)."""
    assert sent_share(kind, 4) == share


def test_latency_over_time(tmp_path):
    mock = Mock(outlier_every=11)
    profile = megascale_profile(tmp_path, mock)
    found = network(profile)
    table = profile.transfers
    rows = table["bytes"] > 0
    us = table["duration_ps"][rows] / 1e6
    latency = found.latency
    assert latency.all.count == len(us) == STEPS * 2 * CHUNKS
    assert latency.all.p50_us == np.percentile(us, 50) == 120
    assert (latency.all.p99_us, latency.all.most_us) == (np.percentile(us, 99), 4_800)
    (pair,) = latency.pairs
    assert (pair.source_slice, pair.destination_slice) == (1, 0)
    assert pair.bytes == us.size * mock.buffer_bytes // CHUNKS
    counted = [one for one in latency.bins if one is not None]
    assert sum(one.count for one in counted) == len(us) and len(latency.bins) == BINS
    assert latency.left_out == {}


def test_transfers_that_are_no_evidence_are_left_out(tmp_path):
    profile = megascale_profile(tmp_path)
    table = profile.transfers
    duration, has_ids = table["duration_ps"].copy(), table["has_ids"].copy()
    source = table["source_slice"].copy()
    first = np.flatnonzero(table["bytes"] > 0)[0]
    duration[first], has_ids[first + 1], source[first + 2] = 0, False, 0
    changed = table.replace(duration_ps=duration, has_ids=has_ids, source_slice=source)
    found = network(replace(profile, transfers=changed)).latency
    assert found.left_out == {"no ids": 1, "no duration": 1, "same slice": 1}
    assert found.all.count == STEPS * 2 * CHUNKS - 3
