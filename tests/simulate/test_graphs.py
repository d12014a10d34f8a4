"""Which flags let CUDA graphs capture what, and which stretches become graphs."""

import pytest

from schedules import copied, gather, gathered, kernel, program, to_host
from slipstream.simulate.graphs import DEFAULT_KINDS, captured_kinds, regions


@pytest.mark.parametrize(
    ("value", "kinds"),
    [
        (None, DEFAULT_KINDS),
        ("", frozenset()),
        ("FUSION,CUBLAS", {"FUSION", "CUBLAS"}),
        ("fusion", {"FUSION"}),
        ("+COLLECTIVES", DEFAULT_KINDS | {"COLLECTIVES"}),
        ("-FUSION", DEFAULT_KINDS - {"FUSION"}),
        ('"FUSION"', {"FUSION"}),
    ],
)
def test_flags_say_what_is_captured(value: str | None, kinds: frozenset[str]) -> None:
    flags = {} if value is None else {"xla_gpu_enable_command_buffer": value}
    assert captured_kinds(flags) == kinds


def kernels(prefix: str, first: str, count: int) -> list[str]:
    names = [first, *(f"{prefix}{i}" for i in range(count))]
    return [kernel(new, old) for old, new in zip(names, names[1:], strict=False)]


def test_what_is_not_captured_ends_a_graph() -> None:
    """Five kernels, a collective, four kernels (too few), its wait, six kernels."""
    found = program(
        *kernels("b", "a", 5),
        gather("g", "b4"),
        *kernels("c", "b4", 4),
        gathered("gd", "g"),
        *kernels("d", "c3", 6),
        "ROOT %t = (f32[8], f32[16]) tuple(%d5, %gd)",
    )
    graphs = regions(found, found.entry.name, DEFAULT_KINDS)
    assert graphs == {**{f"b{i}": 1 for i in range(5)}, **{f"d{i}": 2 for i in range(6)}}
    everything = regions(found, found.entry.name, DEFAULT_KINDS | {"COLLECTIVES"})
    assert set(everything.values()) == {1}
    assert {"g", "gd"} <= everything.keys()


def test_copy_starts_are_not_captured() -> None:
    found = program(
        *kernels("b", "a", 5),
        to_host("s", "b4"),
        copied("d", "s", True),
        "ROOT %t = (f32[8], f32[8]) tuple(%b4, %d)",
    )
    assert regions(found, found.entry.name, DEFAULT_KINDS) == {f"b{i}": 1 for i in range(5)}


def test_a_start_whose_wait_is_elsewhere_stays_outside() -> None:
    slices = "%f (p: f32[8]) -> f32[8] {\n  %p = f32[8] parameter(0)\n"
    slices += "  ROOT %s = f32[8] slice(%p), slice={[0:8]}\n}\n"
    found = program(
        *kernels("b", "a", 5),
        "%s1 = ((f32[8]), f32[8], u32[]) fusion-start(%b4), kind=kLoop, calls=%f",
        *kernels("c", "b4", 5),
        gather("g", "c4", sync=False),
        gathered("gd", "g"),
        "%d1 = f32[8] fusion-done(%s1)",
        "ROOT %t = (f32[8], f32[8], f32[16]) tuple(%c4, %d1, %gd)",
        others=slices,
    )
    graphs = regions(found, found.entry.name, DEFAULT_KINDS)
    assert graphs == {**{f"b{i}": 1 for i in range(5)}, **{f"c{i}": 2 for i in range(5)}}
