"""NCCL's model: its shape, and its error on tables that others published."""

import math
from functools import cache
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from machines.published import ROOT, benchmark
from slipstream.machines.collectives import links_of
from slipstream.machines.nccl import KINDS, Group, channels, fitted, nccl_time
from slipstream.machines.topology import machine

H100 = links_of(machine("8xH100"))
A100 = links_of(machine("8xA100"))
MOST_ERROR = 0.15
"""what the mean over points may be off by"""


@cache
def script() -> ModuleType:
    return benchmark()


@pytest.mark.parametrize("held_out", [None, False, True])
def test_mean_error_against_published_tables(held_out: bool | None) -> None:
    found = script().points(fitted())
    errors = script().main_errors(found, held_out)
    assert len(errors) > 200
    assert script().mean(errors) <= MOST_ERROR


@pytest.mark.parametrize("hosts", [1, 2])
def test_mean_error_inside_hosts_and_across(hosts: int) -> None:
    found = [p for p in script().points(fitted()) if p.table["hosts"] == hosts]
    assert script().mean(script().main_errors(found)) <= MOST_ERROR


def test_crowding_is_within_what_tables_of_many_hosts_say() -> None:
    found = script().crowdings()
    assert {one.table["gpu"] for one in found} == {"B200", "H100"}
    assert all(one.spread < 0.02 for one in found)
    exponents = [one.exponent for one in found]
    assert min(exponents) <= fitted()["network"]["crowding"] <= max(exponents)


def test_the_tables_cover_what_the_goal_names() -> None:
    found = script().points(fitted())
    for kind in script().MAIN:
        of_kind = [p for p in found if p.table["kind"] == kind]
        inside = {p.table["gpus_per_host"] for p in of_kind if p.table["hosts"] == 1}
        assert {2, 4, 8} <= inside
        assert any(p.table["hosts"] > 1 for p in of_kind)
        assert {2**k for k in range(20, 31)} == {p.size for p in of_kind}


def test_the_page_is_what_the_script_writes() -> None:
    page = ROOT / "docs" / "accuracy-collectives.md"
    assert page.read_text(encoding="utf-8") == script().markdown(script().points(fitted()))


def test_no_parameter_is_a_table_in_disguise() -> None:
    """Few parameters, so that no published figure can hide among them."""
    start = script().starting_point()
    free = len(list(script().free(start)))
    assert free * 10 < len(script().points(fitted(), fitting=True))


@given(
    st.sampled_from(KINDS),
    st.integers(1, 2**33),
    st.integers(2, 64),
    st.integers(1, 8),
    st.sampled_from([H100, A100]),
)
def test_more_bytes_never_take_less(kind, size, local, hosts, links) -> None:  # type: ignore[no-untyped-def]
    group = Group(local * hosts, hosts)
    small = nccl_time(kind, size, group, links).us
    large = nccl_time(kind, 2 * size, group, links).us
    assert 0 < small <= large * (1 + 1e-9)
    assert math.isfinite(large)


def test_what_limits_large_messages() -> None:
    size = 2**33
    inside = nccl_time("all-gather", size, Group(8), H100)
    across = nccl_time("all-gather", size, Group(32, 4), H100)
    one_a_host = nccl_time("all-gather", size, Group(4, 4), H100)
    assert inside.algorithm == across.algorithm == "ring"
    # Inside: the link.  Across: the 8 cards of a host.  One GPU a host: one card, 8 times slower.
    assert 450e9 * 0.6 < size / inside.us * 1e6 * 7 / 8 < 450e9
    assert 400e9 * 0.7 < size / across.us * 1e6 * 31 / 32 < 400e9
    assert 6 < one_a_host.us / across.us < 9


def test_algorithms_by_machine_and_size() -> None:
    def taken(kind: str, size: int, group: Group) -> str:
        return nccl_time(kind, size, group, H100).algorithm

    assert taken("all-reduce", 2**30, Group(8)) == "nvls"
    assert taken("all-reduce", 2**30, Group(4)) == "ring"
    assert taken("all-reduce", 2**28, Group(16, 2)) == "nvlstree"
    assert nccl_time("all-reduce", 2**30, Group(8), A100).algorithm == "ring"
    assert nccl_time("all-reduce", 1024, Group(8), H100).protocol == "LL"
    assert nccl_time("all-gather", 2**30, Group(8), H100).protocol == "Simple"


def test_an_algorithm_can_be_forced() -> None:
    ring = nccl_time("all-reduce", 2**30, Group(8), H100, algorithm="ring")
    assert ring.algorithm == "ring"
    assert ring.us > nccl_time("all-reduce", 2**30, Group(8), H100).us


def test_channels_by_algorithm_size_and_hosts() -> None:
    def of(kind: str, size: int, group: Group) -> int:
        return channels(nccl_time(kind, size, group, H100), size, group)

    assert of("all-gather", 2**28, Group(8)) == 24
    assert of("reduce-scatter", 2**28, Group(8)) == 16  # the switch reduces
    assert of("all-to-all", 2**28, Group(8)) == 32
    assert of("all-gather", 2**28, Group(64, 8)) == 16
    assert of("all-reduce", 4, Group(8)) == 1
    assert of("all-reduce", 10 * 8 * 512, Group(8)) == 10


def test_rates_fall_with_the_number_of_hosts() -> None:
    """As published for B200 (Together AI), relative to two hosts: 0.94 on 4, 0.85 on 46."""

    def rate(hosts: int) -> float:
        size, count = 2**36, 8 * hosts
        return size / nccl_time("all-gather", size, Group(count, hosts), H100).us * (1 - 1 / count)

    assert rate(4) / rate(2) == pytest.approx(0.94, abs=0.03)
    assert rate(46) / rate(2) == pytest.approx(0.85, abs=0.03)
