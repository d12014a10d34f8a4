"""Bounds of small programs, counted by hand."""

import pytest

from schedules import (
    MACHINE,
    copied,
    costs,
    gather,
    gathered,
    kernel,
    program,
    to_host,
)
from slipstream.analyses.bounds import bounds


def test_waits_that_more_overlap_would_hide_don_t_count() -> None:
    """b → g → e and c, d beside them: XLA waits for g before c, but c doesn't need it."""
    found = program(
        kernel("b", "a"),
        gather("g", "b"),
        gathered("gd", "g"),
        kernel("c", "a"),
        kernel("d", "c"),
        "ROOT %e = f32[8] fusion(%d, %gd), kind=kLoop, calls=%f",
        others="%f (x: f32[8], y: f32[16]) -> f32[8] {\n  %x = f32[8] parameter(0)\n"
        "  %y = f32[16] parameter(1)\n  ROOT %n = f32[8] negate(%x)\n}\n",
    )
    result = bounds(found, costs(b=10, g=30, c=12, d=1, e=2), MACHINE)
    assert (result.compute_us, result.critical_path_us, result.least_us) == (25, 42, 42)
    assert result.gain(55) == pytest.approx(1 - 42 / 55)
    # 8 floats in and out of four negations; the last one does not read what was gathered.
    assert result.memory_us == pytest.approx(4 * 64 / 1e12 * 1e6)


def test_compute_alone_is_the_bound_where_everything_can_hide() -> None:
    found = program(
        to_host("s", "a"),
        kernel("b", "a"),
        kernel("c", "a"),
        copied("d", "s", True),
        "ROOT %t = (f32[8], f32[8], f32[8]) tuple(%b, %c, %d)",
    )
    result = bounds(found, costs(s=15, b=10, c=10), MACHINE)
    assert (result.compute_us, result.critical_path_us, result.least_us) == (20, 15, 20)
    assert result.gain(20) == 0
    assert not result.has_gain(20.3)
    assert result.has_gain(21)


def test_a_loop_waits_in_every_turn() -> None:
    """Two turns of a chain of 5 + 2, and a collective of 20 that may run beside all of them."""
    loop = """%body (p: (s32[], f32[8])) -> (s32[], f32[8]) {
  %p = (s32[], f32[8]) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %x = f32[8] get-tuple-element(%p), index=1
  %g = (f32[8], f32[8]) collective-permute-start(%x), source_target_pairs={{0,1},{1,0}}
  %gd = f32[8] collective-permute-done(%g)
  %b = f32[8] negate(%gd)
  ROOT %t = (s32[], f32[8]) tuple(%i, %b)
}

%condition (q: (s32[], f32[8])) -> pred[] {
  %q = (s32[], f32[8]) parameter(0)
  ROOT %c = pred[] constant(true)
}
"""
    found = program(
        gather("o", "a"),
        "%k = s32[] constant(0)",
        "%z = (s32[], f32[8]) tuple(%k, %a)",
        "%w = (s32[], f32[8]) while(%z), condition=%condition, body=%body, "
        'backend_config={"known_trip_count":{"n":"2"}}',
        gathered("od", "o"),
        "ROOT %r = f32[8] get-tuple-element(%w), index=1",
        others=loop,
    )
    result = bounds(found, costs(o=20, g=5, b=2), MACHINE)
    assert (result.compute_us, result.critical_path_us, result.least_us) == (4, 20, 20)
    shorter = bounds(found, costs(o=10, g=5, b=2), MACHINE)
    assert (shorter.critical_path_us, shorter.least_us) == (14, 14)


def test_no_overlap_makes_a_link_carry_more() -> None:
    """Four gathers that don't depend on each other: each takes 30, but they share one link."""
    names = ("g", "h", "i", "j")
    found = program(
        *(gather(name, "a") for name in names),
        kernel("b", "a"),
        *(gathered(f"{name}d", name) for name in names),
        kernel("c", "b", root=True),
    )
    # 64 bytes to a neighbour: far faster than the link, so that each gather fills it.
    us = 1e-6
    result = bounds(found, costs(g=us, h=us, i=us, j=us, b=us, c=us), MACHINE)
    assert result.critical_path_us == pytest.approx(2 * us)
    assert result.least_us == pytest.approx(4 * us)
    assert result.links_us == {"NVLink out": pytest.approx(4e-6), "NVLink in": pytest.approx(4e-6)}
    assert result.deciding_link == "NVLink out"
    assert bounds(found, costs(g=us, h=us, b=1, c=1), MACHINE).deciding_link is None


def test_a_loop_loads_its_links_in_every_turn() -> None:
    loop = """%body (p: (s32[], f32[8])) -> (s32[], f32[8]) {
  %p = (s32[], f32[8]) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %x = f32[8] get-tuple-element(%p), index=1
  %g = (f32[8], f32[16]) all-gather-start(%x), replica_groups={{0,1}}, dimensions={0}
  %h = (f32[8], f32[16]) all-gather-start(%x), replica_groups={{0,1}}, dimensions={0}
  %gd = f32[16] all-gather-done(%g)
  %hd = f32[16] all-gather-done(%h)
  ROOT %t = (s32[], f32[8]) tuple(%i, %x)
}

%condition (q: (s32[], f32[8])) -> pred[] {
  %q = (s32[], f32[8]) parameter(0)
  ROOT %c = pred[] constant(true)
}
"""
    found = program(
        "%k = s32[] constant(0)",
        "%z = (s32[], f32[8]) tuple(%k, %a)",
        "%w = (s32[], f32[8]) while(%z), condition=%condition, body=%body, "
        'backend_config={"known_trip_count":{"n":"3"}}',
        "ROOT %r = f32[8] get-tuple-element(%w), index=1",
        others=loop,
    )
    result = bounds(found, costs(g=1e-6, h=1e-6), MACHINE)
    assert result.least_us == result.links_us["NVLink out"] == pytest.approx(6e-6)
    assert result.critical_path_us == pytest.approx(6e-6)  # the loop's own bound is on the path
