"""Attribution inside CUDA graphs, against recordings of the same programs without graphs."""

import numpy as np
import pytest

from slipstream.analyses.ops import ops
from slipstream.profile.attribution.attribution import attribute
from slipstream.sources.load import load

# (with command buffers, the same program without them)
PAIRS = [
    ("off_default", "off_lhs_nocb"),
    ("attention_graphs", "attention_plain"),
    ("convolution_graphs", "convolution_plain"),
]
LABELLED = ["off_lhs_nocb", "off_pgle_nocb", "attention_plain", "convolution_plain"]
LABELLED += ["nccl2_lhs_r0", "nccl2_nolhs_r0"]


def recording(data, name):
    return load(data / f"{name}.xplane.pb.gz")


@pytest.mark.parametrize("name", [*(graphs for graphs, _ in PAIRS), "single"])
def test_device_time_inside_graphs_is_attributed(name, data):
    found = ops(recording(data, name))

    assert found.attributed_share >= 0.995


@pytest.mark.parametrize(("graphs", "plain"), PAIRS)
def test_execution_counts_equal_those_without_graphs(graphs, plain, data):
    counts = [
        {op.instruction: op.count for op in ops(recording(data, name)).ops}
        for name in (graphs, plain)
    ]

    assert counts[0] == counts[1]


@pytest.mark.parametrize(("graphs", "plain"), PAIRS)
def test_costs_equal_those_without_graphs(graphs, plain, data):
    """Weighted by time, host copies aside: those truly run at another speed inside graphs."""
    ours, truth = (
        {op.instruction: op for op in ops(recording(data, name)).ops} for name in (graphs, plain)
    )
    compared = [op for op in truth.values() if op.category != "host copy"]
    error = sum(abs(ours[op.instruction].total_us - op.total_us) for op in compared)

    assert error / sum(op.total_us for op in compared) <= 0.035


@pytest.mark.parametrize("name", LABELLED)
def test_blind_every_hidden_label_is_put_back(name, data):
    """The compute stream of each execution as one graph, as if XLA had captured the whole step."""
    labelled = recording(data, name)
    events = labelled.events
    compute = np.bincount(events["lane"]).argmax()
    rows = np.flatnonzero(events["lane"] == compute)
    truth = [events.text("instruction", row) for row in rows]
    hidden = events.take(rows)
    nothing = np.zeros(len(rows), np.int32)
    hidden = hidden.replace(
        [*events.texts, "command_buffer_1"],
        op=np.full(len(rows), len(events.texts), np.int32),
        graph=np.ones(len(rows), np.int64),
        correlation=hidden["execution"].astype(np.int64) + 1,
        instruction=nothing,
        execution=nothing,
    )

    found = attribute(labelled.with_events(hidden)).events

    assert [found.text("instruction", row) for row in range(len(found))] == truth


def test_kernels_that_fit_nowhere_stay_unattributed(data):
    recorded = recording(data, "off_default")
    events = recorded.events
    row = int(np.flatnonzero(events["duration_ps"] > 10**9)[0])
    names = events["name"].copy()
    names[names == names[row]] = len(events.texts)
    strange = events.replace([*events.texts, "ncclDevKernel_AllReduce_Sum"], name=names)
    strange = strange.replace(instruction=np.zeros(len(events), np.int32))

    found = attribute(recorded.with_events(strange)).events

    lost = found["instruction"] == 0
    assert set(found["name"][lost]) == {len(events.texts)}
    assert lost.sum() == (names == len(events.texts)).sum()


def test_events_of_no_program_stay_unattributed(data):
    """Kernels that JAX launches outside any program stand between those of one."""
    whole = recording(data, "single")
    strangers = np.zeros(len(whole.events), bool)
    strangers[[0, -1]] = True
    program = np.where(strangers, 0, whole.events["program"]).astype(np.int32)
    op = np.where(strangers, 0, whole.events["op"]).astype(np.int32)
    bare = whole.events.replace(program=program, op=op, instruction=np.zeros_like(op))

    found = attribute(whole.with_events(bare)).events

    assert not found["instruction"][strangers].any()
    assert (found["instruction"][~strangers] != 0).mean() > 0.99
