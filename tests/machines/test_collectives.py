"""What a collective takes on a machine: groups, links, and curves that were measured."""

from dataclasses import replace

import pytest

from slipstream.machines.collectives import collective_time, groups_of, links_of
from slipstream.machines.machine import Machine
from slipstream.machines.nccl import Group, nccl_time
from slipstream.machines.topology import machine
from slipstream.profile.program import Collective

CURVE = {"kind": "all-gather", "group": 8, "bytes": [2**20, 2**24, 2**30], "us": [50.0, 100.0, 4e3],
         "source": "all_gather.txt"}  # fmt: skip


def calibrated(spec: str, *curves: dict[str, object]) -> Machine:
    return replace(machine(spec), calibration={"collectives": list(curves)})


def test_one_group_of_all_devices_by_default() -> None:
    found = collective_time(machine("2x8xH100"), Collective("all-gather", 2**28))
    expected = nccl_time("all-gather", 2**28, Group(16, 2), links_of(machine("2x8xH100")))
    assert (found.us, found.basis, found.kind) == (expected.us, "modelled", "collective")
    rate = f"{2**28 / found.us / 1e3:.3g} GB/s"
    assert found.why == f"268 MB, 16 GPUs in 2 hosts: ring (Simple) over infiniband, {rate}"


def test_groups_inside_hosts_and_across_rails() -> None:
    two = machine("2x8xH100")
    inside = (tuple(range(8)), tuple(range(8, 16)))
    rails = tuple((device, device + 8) for device in range(8))
    fast = collective_time(two, Collective("all-reduce", 2**26, 8, inside))
    slow = collective_time(two, Collective("all-reduce", 2**26, 2, rails))
    assert "nvls" in fast.why and "infiniband" in slow.why
    assert slow.us > 4 * fast.us


def test_the_slowest_of_several_kinds_of_group_counts() -> None:
    two = machine("2x8xH100")
    mixed = Collective("all-gather", 2**26, 2, ((0, 1), (7, 8)))
    across = Collective("all-gather", 2**26, 2, ((7, 8),))
    assert collective_time(two, mixed) == collective_time(two, across)


def test_a_rack_is_one_set_of_linked_gpus() -> None:
    assert (
        "over nvswitch" in collective_time(machine("72xGB200"), Collective("all-reduce", 2**28)).why
    )
    found = collective_time(machine("144xGB200"), Collective("all-reduce", 2**28))
    assert "144 GPUs in 2 racks" in found.why and "over infiniband" in found.why


def test_permutes_by_their_pairs() -> None:
    two = machine("2x8xH100")

    def us(*pairs: tuple[int, int]) -> float:
        return collective_time(
            two, Collective("collective-permute", 2**26, source_target_pairs=pairs)
        ).us

    assert us((0, 0)) == 0
    assert us((0, 1), (1, 0)) == us((3, 4))
    assert us((0, 1), (7, 8)) == us((0, 15)) > us((0, 1))


def test_nothing_to_do() -> None:
    alone = collective_time(machine("H200"), Collective("all-reduce", 2**30))
    assert alone.us == pytest.approx(2 * 2**30 / 4.814304e12 * 1e6)
    assert collective_time(machine("8xH200"), Collective("all-reduce", 0)).us == 0


def test_a_collective_that_nccl_lacks_is_a_guess() -> None:
    found = collective_time(machine("8xH200"), Collective("something-new", 2**20))
    assert found.basis == "default"


def test_measured_points_and_what_lies_between() -> None:
    mine = calibrated("8xH100", CURVE)

    def at(size: int) -> float:
        found = collective_time(mine, Collective("all-gather", size))
        assert (found.basis, found.why.rpartition(", from ")[2]) == ("calibrated", "all_gather.txt")
        return found.us

    assert [at(size) for size in (2**20, 2**24, 2**30)] == pytest.approx([50.0, 100.0, 4000.0])
    assert at(2**22) == pytest.approx((50.0 * 100.0) ** 0.5)
    model = links_of(mine)
    beyond = nccl_time("all-gather", 2**31, Group(8), model).us
    assert at(2**31) == pytest.approx(
        4000 * beyond / nccl_time("all-gather", 2**30, Group(8), model).us
    )


def test_other_groups_follow_the_model_scaled_to_what_was_measured() -> None:
    mine, plain = calibrated("8xH100", CURVE), machine("8xH100")
    gather = Collective("all-gather", 2**30, 4, (tuple(range(4)),))
    whole = Collective("all-gather", 2**30)
    factor = 4000 / collective_time(plain, whole).us
    found = collective_time(mine, gather)
    assert found.us == pytest.approx(factor * collective_time(plain, gather).us)
    assert (found.basis, f"× {factor:.2f}, from all_gather.txt" in found.why) == ("modelled", True)
    # Nothing across hosts was measured: there the plain model stands.
    both = calibrated("2x8xH100", CURVE)
    assert collective_time(both, whole) == collective_time(machine("2x8xH100"), whole)


def test_as_many_devices_as_a_program_names() -> None:
    """The devices are counted, not listed."""
    found = groups_of(machine("2xH200"), Collective("all-reduce", 2**26), 3 * 10**9)
    assert found == [Group(3 * 10**9, 15 * 10**8)]


def test_groups_of_a_larger_job_share_its_network() -> None:
    """Groups of 16 hosts, in a job of 16 hosts and of 256."""
    group = Collective("all-gather", 2**30, 128, (tuple(range(128)),))
    small, large = (collective_time(machine(f"{n}x8xH100"), group).us for n in (16, 256))
    assert 1.05 < large / small < 1.15
