"""Counts of small programs, by hand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from schedules import MACHINE, costs, gather, gathered, kernel, program
from slipstream.simulate.engine import simulation
from slipstream.sources.hlo.reader import read_program
from slipstream.tune.search.program_counts import (
    CollectiveCounts,
    ProgramCounts,
    counts_of,
    most_at_once,
)

DATA = Path(__file__).parents[2] / "data"
LOOP = """
%body (p: (s32[], f32[8])) -> (s32[], f32[8]) {
  %p = (s32[], f32[8]) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %x = f32[8] get-tuple-element(%p), index=1
  %r = f32[8] all-reduce(%x), replica_groups={{0,1}}, to_apply=%add
  ROOT %n = (s32[], f32[8]) tuple(%i, %r)
}
%condition (q: (s32[], f32[8])) -> pred[] {
  %q = (s32[], f32[8]) parameter(0)
  ROOT %c = pred[] constant(true)
}
%add (u: f32[], v: f32[]) -> f32[] {
  %u = f32[] parameter(0)
  %v = f32[] parameter(1)
  ROOT %s = f32[] add(%u, %v)
}
"""


def test_loops_count_by_their_trips_and_combined_collectives_by_their_arrays() -> None:
    found = program(
        "%z = s32[] constant(0)",
        "%t = (s32[], f32[8]) tuple(%z, %a)",
        "%w = (s32[], f32[8]) while(%t), condition=%condition, body=%body, "
        'backend_config={"known_trip_count":{"n":"5"}}',
        "%o = f32[8] get-tuple-element(%w), index=1",
        "%g = ((f32[8], f32[8]), (f32[16], f32[16])) all-gather-start(%a, %o), "
        "replica_groups={{0,1}}, dimensions={0}",
        "ROOT %d = (f32[16], f32[16]) all-gather-done(%g)",
        others=LOOP,
    )
    assert counts_of(found) == ProgramCounts(
        {
            "all-gather": CollectiveCounts(1, 128, 128, 2, 1, 0),
            "all-reduce": CollectiveCounts(5, 160, 32, 5, 0, 5),
        },
        loops=(5,),
    )


def test_cycles_of_xlas_tpu_compiler() -> None:
    """Each operation's estimate, as often as it runs; those without a model have none."""
    found = read_program(DATA / "tpu" / "v5e_2slices.hlo.gz")
    expected = 0
    for line in found.scheduled:
        stated = re.search(r'"estimated_cycles":"(\d+)"', line.backend_config)
        if stated and "COST_MODEL_TYPE_INVALID" not in line.backend_config:
            expected += int(stated[1]) * found.executions(line.name)
    assert counts_of(found).compiler_cycles == expected > 1e7


@pytest.mark.parametrize(("limit", "most"), [("1", 1), ("2", 2)])
def test_collectives_in_flight_at_once(limit: str, most: int) -> None:
    """With one stream for collectives, the second waits for the first."""
    found = program(
        gather("g", "a"), gather("h", "a"), kernel("b", "a"), gathered("gd", "g"),
        gathered("hd", "h"), kernel("c", "b", root=True),
        flags={"xla_gpu_experimental_parallel_collective_overlap_limit": limit},
    )  # fmt: skip
    step = simulation(found, MACHINE, estimates=costs(g=100, h=100, b=10, c=10))
    assert most_at_once(found, step.profile) == most
    assert most_at_once(program(kernel("b", "a", root=True)), step.profile) == 0
