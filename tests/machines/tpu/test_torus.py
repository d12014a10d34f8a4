import pytest

from slipstream.machines.topology import machine
from slipstream.machines.tpu.torus import box, chip_places, torus_estimate, torus_time
from slipstream.profile.program import Collective, Instruction
from slipstream.profile.shapes import parse_shape

GB = 1_000_000_000
ALL = tuple(range(256))


def gather(size: int, group: tuple[int, ...], kind: str = "all-gather") -> Collective:
    return Collective(kind, size, len(group), (group,))


def test_devices_are_where_jax_puts_them() -> None:
    # The first eight devices of v5e:4x4, as JAX lists them: four of a host, then the next host's.
    assert chip_places(machine("v5e:4x4"))[:8] == (
        (0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (3, 0), (2, 1), (3, 1),
    )  # fmt: skip
    assert chip_places(machine("v5p:2x2x2"))[3:6] == ((1, 1, 0), (0, 0, 1), (1, 0, 1))
    # A program's own devices, by their number in the slice.
    assert chip_places(machine("v5e:4x4"), (0, 5, 14)) == ((0, 0), (1, 1), (2, 3))
    # Two devices on a chip.
    assert chip_places(machine("tpu7x:2x2x1"))[:3] == ((0, 0, 0), (0, 0, 0), (1, 0, 0))


@pytest.mark.parametrize(
    ("spec", "places", "axes"),
    [
        ("v5e:16x16", {(0, 0), (1, 0)}, [(0, 2, 1, False)]),
        ("v5e:16x16", {(i, 3) for i in range(16)}, [(0, 16, 1, True)]),
        ("v5e:16x16", {(3, i) for i in range(0, 16, 2)}, [(1, 8, 2, True)]),
        ("v5e:8x8", {(3, i) for i in range(8)}, [(1, 8, 1, False)]),
        ("v5p:4x4x4", {(0, 0, i) for i in range(4)}, [(2, 4, 1, True)]),
        ("v5p:2x2x2", {(0, 0, 0), (0, 1, 1)}, [(1, 2, 1, False), (2, 2, 1, False)]),
    ],
)  # fmt: skip
def test_a_group_spans_axes(
    spec: str, places: set[tuple[int, ...]], axes: list[tuple[int, int, int, bool]]
) -> None:
    found = box(places, machine(spec))
    assert [(axis.number, axis.length, axis.gap, axis.wraps) for axis in found] == axes


@pytest.mark.parametrize(
    ("spec", "kind", "group", "sides"),
    [
        # Two axes that wrap: from four sides at once.
        ("v5e:16x16", "all-gather", 256, 4),
        ("v5e:16x16", "reduce-scatter", 256, 4),
        # There and back.
        ("v5e:16x16", "all-reduce", 256, 2),
        # Two lines.
        ("v5e:4x4", "all-gather", 16, 2),
        ("v5p:2x2x2", "all-gather", 8, 3),
        ("v5p:4x4x4", "all-gather", 64, 6),
    ],
)
def test_rings_along_all_axes(spec: str, kind: str, group: int, sides: float) -> None:
    on = machine(spec)
    found = torus_time(on, gather(GB, tuple(range(group)), kind))
    rate = on.tpu.ici_bandwidth * on.tpu.ici_share
    alone = GB * (group - 1) / group / (sides * rate) * 1e6
    assert found.us == pytest.approx(alone, rel=0.01)
    assert found.us > alone
    assert torus_estimate(on, gather(GB, tuple(range(group)), kind)).basis == "modelled"


def test_axes_are_busy_as_long_as_they_carry_something() -> None:
    on = machine("v5e:16x16")
    row = torus_time(on, gather(GB, tuple(chip for chip in ALL if chip_places(on)[chip][1] == 0)))
    [(axis, us)] = row.busy_us
    assert axis == 0
    assert us == pytest.approx(row.us, rel=0.01)


def test_the_compiler_may_use_one_ring_only() -> None:
    config = '{"collective_algorithm_config":{"emitter":"1DAllGatherOnMajorDimImbalanced"}}'
    shape = parse_shape("bf16[2]")
    stated = Instruction("g", "all-gather", shape, (), "main", 0, backend_config=config)
    on = machine("v5e:16x16")
    one, all_axes = (torus_time(on, gather(GB, ALL), it) for it in (stated, None))
    assert one.us == pytest.approx(2 * all_axes.us, rel=0.01)
    assert "1 ring" in one.how


def test_an_exchange_crosses_the_middle_of_the_longest_axis() -> None:
    on = machine("v5e:16x16")
    found = torus_time(on, gather(GB, ALL, "all-to-all"))
    assert found.us == pytest.approx(16 * GB / 4 / (2 * 0.9 * 50e9) * 1e6, rel=0.01)


@pytest.mark.parametrize(
    ("spec", "pairs", "load", "hops"),
    [
        # Neighbours along a ring of chips in a row: every link carries one part.
        ("v5p:4x4x4", [(0, 1), (1, 0)], 1, 1),
        # The ring that XLA makes of 2x2x2 in JAX's order: from 3 to 4 and from 7 to 0 are three
        # hops, over links that no other pair needs.
        ("v5p:2x2x2", [(i, (i + 1) % 8) for i in range(8)], 1, 3),
        # Along a line of four, the middle link carries what goes from 0 to 2 and from 1 to 3.
        ("v5e:4x4", [(0, 4), (1, 5)], 2, 2),
    ],
)
def test_a_permutation_takes_as_long_as_its_busiest_link(
    spec: str, pairs: list[tuple[int, int]], load: int, hops: int
) -> None:
    on = machine(spec)
    moved = Collective("collective-permute", GB, 2, (), None, tuple(pairs))
    found = torus_time(on, moved)
    rate = on.tpu.ici_bandwidth * on.tpu.ici_share
    assert found.us == pytest.approx(load * GB / rate * 1e6 + 1 + hops, rel=1e-6)
    assert f"{hops} hop" in found.how


def test_what_has_no_model_is_a_default() -> None:
    on = machine("v5e:4x4")
    assert torus_estimate(on, gather(GB, (0, 1, 2), "all-gather")).basis == "default"
    assert torus_estimate(on, gather(GB, tuple(range(16)), "ragged-all-to-all")).basis == "default"


def test_nothing_to_move() -> None:
    on = machine("v5e:4x4")
    assert torus_time(on, gather(0, (0, 1))).us == 0
    assert torus_time(on, gather(GB, (3,))).us == 0
    # Through the memory of a chip that has two devices.
    assert 0 < torus_time(machine("tpu7x:2x2x1"), gather(GB, (0, 1))).us < 2000
