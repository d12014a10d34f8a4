"""What collectives and copies move over the links of a GPU, counted by hand."""

from dataclasses import replace

import pytest

from schedules import MACHINE, costs, gather, gathered, kernel, program, to_device, to_host
from slipstream.machines.collectives import collective_time
from slipstream.machines.links import (
    HOST_IN,
    HOST_OUT,
    LINK_IN,
    LINK_OUT,
    LINKS,
    NETWORK_IN,
    NETWORK_OUT,
    Load,
    capacity,
    collective_loads,
    loads,
    program_loads,
    within,
)
from slipstream.machines.nccl import KINDS
from slipstream.machines.topology import machine
from slipstream.profile.program import Collective

SPECS = ("2xH100", "8xH100", "2x8xH100", "64x8xH100", "8xA100", "2x8xA100", "4xA100-PCIe",
         "2x8xB200", "72xGB200", "144xGB200")  # fmt: skip
SIZES = (2**10, 2**20, 2**25, 2**30, 2**34)


def collective(kind: str, size: int, *group: int) -> Collective:
    pairs = ((group[0], group[-1]),)
    return Collective(kind, size, len(group), (group,), source_target_pairs=pairs)


def moved(spec: str, one: Collective) -> dict[str, float]:
    found = collective_loads(machine(spec), one)
    return {LINKS[load.link]: pytest.approx(load.bytes) for load in found}


def test_a_ring_in_a_host_passes_everything_but_its_own_part() -> None:
    gathered = moved("8xH100", collective("all-gather", 8 * 10**8, *range(8)))
    assert gathered == {"NVLink out": 7e8, "NVLink in": 7e8}


def test_the_switch_reduces_what_every_gpu_sends_once() -> None:
    """Each GPU's data is read once; a part of the result comes back, or all of it."""
    scattered = moved("8xH100", collective("reduce-scatter", 8 * 10**8, *range(8)))
    assert scattered == {"NVLink out": 8e8, "NVLink in": 1e8}
    reduced = moved("8xH100", collective("all-reduce", 8 * 10**8, *range(8)))
    assert reduced == {"NVLink out": 9e8, "NVLink in": 9e8}


def test_rings_between_hosts_use_all_network_cards() -> None:
    """16 × 10⁸ bytes around 16 GPUs: every edge carries 15 parts; one in eight is a network card,
    behind which lies the GPU's host link."""
    assert moved("2x8xH100", collective("all-gather", 16 * 10**8, *range(16))) == {
        "NVLink out": 15e8 * 7 / 8, "NVLink in": 15e8 * 7 / 8,
        "network out": 15e8 / 8, "network in": 15e8 / 8,
        "host link out": 15e8 / 8, "host link in": 15e8 / 8,
    }  # fmt: skip


def test_one_gpu_of_each_host_uses_its_own_network_card() -> None:
    reduced = moved("2x8xH100", collective("all-gather", 2 * 10**8, 0, 8))
    assert reduced["network out"] == 1e8
    assert "NVLink out" not in reduced


def test_a_send_goes_out_and_a_receive_comes_in() -> None:
    assert moved("8xH100", collective("send", 10**8, 0, 1)) == {"NVLink out": 1e8}
    assert moved("2x8xH100", collective("recv", 10**8, 0, 8)) == {
        "network in": 1e8, "host link in": 1e8,
    }  # fmt: skip


def test_without_nvlink_gpus_share_the_link_to_their_host() -> None:
    gathered = moved("4xA100-PCIe", collective("all-gather", 4 * 10**8, *range(4)))
    assert gathered == {"host link out": 3e8, "host link in": 3e8}


def test_exchanges_go_by_link_within_a_host_and_by_network_between() -> None:
    exchanged = moved("2x8xH100", collective("all-to-all", 16 * 10**8, *range(16)))
    assert exchanged["NVLink out"] == 7e8
    assert exchanged["network out"] == exchanged["host link in"] == 8e8


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("kind", KINDS)
def test_no_collective_alone_exceeds_a_link(spec: str, kind: str) -> None:
    where = machine(spec)
    compared = 0
    for size in SIZES:
        for group in (range(where.devices), range(2), (0, where.devices - 1)):
            one = collective(kind, size, *group)
            us = collective_time(where, one).us
            for load in within(collective_loads(where, one), us):
                assert load.us <= us
                assert load.bytes / capacity(where, load.link) * 1e6 <= load.us * 1.000001
                compared += 1
    assert compared >= len(SIZES)


def test_large_collectives_fill_a_link() -> None:
    """Two at once take twice the time: nothing else limits them."""
    for spec in SPECS:
        where = machine(spec)
        one = collective("all-gather", 2**34, *range(where.devices))
        busiest = max(load.us for load in collective_loads(where, one))
        assert busiest >= 0.8 * collective_time(where, one).us


def test_a_calibrated_time_is_that_of_slower_links() -> None:
    where = machine("8xH100")
    one = collective("all-gather", 2**30, *range(8))
    curve = {"kind": "all-gather", "group": 8, "bytes": [2**30], "us": [9999.0]}
    slower = replace(where, calibration={"collectives": [curve]})
    share = [load.us / collective_time(where, one).us for load in collective_loads(where, one)]
    assert [load.us / 9999 for load in collective_loads(slower, one)] == pytest.approx(share)


def test_copies_to_and_from_the_host() -> None:
    found = program(
        to_host("s", "a"), "%h = f32[8]{0:S(5)} parameter(1)", to_device("t", "h"),
        kernel("b", "a", root=True),
    )  # fmt: skip

    def of(name: str) -> list[tuple[int, float]]:
        instruction = found.instruction(name)
        return [(load.link, load.bytes) for load in loads(MACHINE, found, instruction)]

    assert of("s") == [(HOST_OUT, 32)]
    assert of("t") == [(HOST_IN, 32)]
    assert of("b") == []


def test_a_measured_time_under_the_model_s_fills_the_link() -> None:
    assert within((Load(LINK_IN, 100, 4),), 2) == (Load(LINK_IN, 50, 2),)
    assert within((Load(LINK_IN, 100, 4),), 8) == (Load(LINK_IN, 100, 4),)
    assert within((Load(LINK_IN, 100, 4),), 0) == ()
    found = program(gather("g", "a"), gathered("gd", "g"), kernel("b", "a", root=True))
    by_name = program_loads(MACHINE, found, costs(g=1e-9, b=1))
    assert list(by_name) == ["g"]
    assert {load.link: load.us for load in by_name["g"]} == {LINK_OUT: 1e-9, LINK_IN: 1e-9}


def test_links_have_a_capacity() -> None:
    where = machine("2x8xH200")
    rates = {
        capacity(where, link)
        for link in (LINK_OUT, LINK_IN, NETWORK_OUT, NETWORK_IN, HOST_OUT, HOST_IN)
    }
    assert rates == {450e9, 50e9, 64e9}
