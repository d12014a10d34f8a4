"""Costs out of recordings, against JAX's own extractor and against each other."""

import gzip

import numpy as np
import pytest

from slipstream.costs.extract import extract_costs
from slipstream.costs.files import read_costs
from slipstream.errors import BadInput
from slipstream.profile.events import EVENT_COLUMNS, Table
from slipstream.sources.load import load
from slipstream.sources.proto_schema import message

# What JAX's extractor made of the recordings, on the machine that recorded them.
BY_JAX = {
    "off_lhs_nocb": "off.pb.gz",
    "nccl2_lhs_r0": "nccl2_lhs_r0.pgle.pb.gz",
    "nccl2_nolhs_r0": "nccl2_nolhs_r0.pgle.pb.gz",
}


def recording(data, name):
    return load(data / f"{name}.xplane.pb.gz")


def costs_of(profile, policy="typical"):
    (program, *_) = extract_costs(profile, policy).programs
    return program.costs


@pytest.mark.parametrize("name", BY_JAX)
def test_policy_jax_equals_what_jax_wrote(name, data):
    proto = message("ProfiledInstructionsProto").FromString(
        gzip.decompress((data / BY_JAX[name]).read_bytes())
    )
    theirs = {cost.name: cost.cost_us for cost in proto.costs}

    ours = {name: cost.us for name, cost in costs_of(recording(data, name), "jax").items()}

    assert ours == pytest.approx(theirs, rel=1e-9)


def test_typical_differs_from_jax_where_the_defects_are(data):
    """JAX averages kernels: an instruction of several kernels gets their mean, not their sum."""
    profile = recording(data, "off_lhs_nocb")
    events = profile.events
    kernels = {
        name: (events["instruction"] == events.texts.index(name)).sum()
        for name in ("custom-call.16", "fusion.79")
    }
    typical, jax = costs_of(profile), costs_of(profile, "jax")

    # A memset and a matmul: JAX's mean is about half of what one execution takes.
    assert kernels["custom-call.16"] == 2 * typical["custom-call.16"].executions
    assert typical["custom-call.16"].us / jax["custom-call.16"].us == pytest.approx(2, rel=0.05)
    # One kernel an execution: the same, but for mean and median.
    assert kernels["fusion.79"] == typical["fusion.79"].executions
    assert typical["fusion.79"].us == pytest.approx(jax["fusion.79"].us, rel=0.05)
    # Asynchronous work goes under the start's name; the wrapped name is JAX's.
    assert "dynamic-slice-start.1" in typical and "wrapped_dynamic-slice" in jax


def test_costs_inside_command_buffers_are_near_those_without(data):
    """Weighted by time, host copies aside; JAX's extractor finds five labels there."""
    inside, outside = (costs_of(recording(data, n)) for n in ("off_default", "off_lhs_nocb"))
    host = {"dynamic-slice-start.1", "dynamic-update-slice-start.1"}
    compared = [cost for name, cost in outside.items() if name not in host]
    error = sum(abs(inside[c.name].us - c.us) * c.executions for c in compared)

    assert inside.keys() == outside.keys()
    assert error / sum(c.us * c.executions for c in compared) <= 0.04
    assert all(
        name.startswith("command_buffer")
        for name in costs_of(recording(data, "off_default"), "jax")
    )


def test_percentile_is_picked_as_jax_picks_it(data):
    profile = recording(data, "off_lhs_nocb")
    events = profile.events
    rows = events["instruction"] == events.texts.index("fusion.79")
    times = np.sort(events["duration_ps"][rows]) / 1e6

    assert costs_of(profile, "percentile:90")["fusion.79"].us == times[int(0.9 * (len(times) - 1))]
    assert costs_of(profile, "percentile:0")["fusion.79"].us == times[0]


def test_max_communication_takes_extremes(data):
    profile = recording(data, "nccl2_lhs_r0")
    least, most = (costs_of(profile, f"percentile:{n}") for n in (0, 100))
    costs = costs_of(profile, "max-communication")

    assert costs["all-to-all-start.10"].us == most["all-to-all-start.10"].us
    assert costs["custom-call.10"].us == least["custom-call.10"].us


def test_unknown_policy_lists_the_known(data):
    with pytest.raises(BadInput, match="no policy 'mean'; choose one of: typical, percentile:N"):
        extract_costs(recording(data, "off_lhs_nocb"), "mean")


def test_an_empty_profile_says_what_to_do(data):
    profile = recording(data, "off_lhs_nocb")
    empty = profile.with_events(Table.empty(EVENT_COLUMNS))

    with pytest.raises(BadInput, match="no events that belong to an instruction"):
        extract_costs(empty)


def test_a_late_host_costs_a_collective_nothing(data, tmp_path):
    """Two hosts of one run: one enters a collective late, and only that one shows its cost."""
    plain = gzip.decompress((data / "nccl2_lhs_r0.xplane.pb.gz").read_bytes())
    space = message("XSpace").FromString(plain)
    (tmp_path / "early.xplane.pb").write_bytes(plain)
    waited = 5_000_000_000  # 5 ms, in picoseconds
    for plane in space.planes:
        if not plane.name.startswith("/device:GPU"):
            continue
        nccl = {k for k, v in plane.event_metadata.items() if v.name.startswith("nccl")}
        for line in plane.lines:
            for event in line.events:
                if event.metadata_id in nccl:
                    event.offset_ps += waited // 1000
                    event.duration_ps -= event.duration_ps // 2
    space.hostnames[:] = ["late"]
    (tmp_path / "late.xplane.pb").write_bytes(space.SerializeToString())

    early, late = (costs_of(load(tmp_path / f"{name}.xplane.pb")) for name in ("early", "late"))
    both = costs_of(load(tmp_path))

    collective = "all-to-all-start.10"
    assert late[collective].us == pytest.approx(early[collective].us / 2, rel=1e-3)
    assert both[collective].us == pytest.approx(late[collective].us, rel=1e-3)
    assert both["custom-call.10"].us == pytest.approx(early["custom-call.10"].us, rel=1e-3)


def test_written_and_read_again(data, tmp_path):
    table = extract_costs(recording(data, "off_default"))
    for name in ("costs.pb", "costs.pbtxt", "folder"):
        table.write(tmp_path / name)
        again = read_costs(tmp_path / name)

        assert again.policy == "typical"
        assert again.programs[0].fingerprint == table.programs[0].fingerprint
        assert dict(again.programs[0].costs) == dict(table.programs[0].costs)
        assert again.facts["jaxlib_version"] == "0.11.2"
        assert len(again.facts["sources"][0]["sha256"]) == 64
