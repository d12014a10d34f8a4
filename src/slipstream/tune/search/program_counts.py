"""What a compiled program has that settings change: its collectives, matmuls and loops, counted.

Reasons rest on these counts, never on what a setting ought to do: XLA combines, pipelines and makes
asynchronous only what its other rules allow.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from slipstream.profile.profile import Profile
from slipstream.profile.program import Instruction, Program
from slipstream.profile.semantics.backend_config import estimated_cycles, has_cost_model
from slipstream.profile.semantics.categories import category


@dataclass(frozen=True)
class CollectiveCounts:
    """The collectives of one kind in one step, loops by their trip counts."""

    count: int = 0
    bytes: int = 0
    largest_bytes: int = 0
    arrays: int = 0
    """operands of all of them: more than `count` if XLA combined some"""
    asynchronous: int = 0
    in_loops: int = 0


@dataclass(frozen=True)
class ProgramCounts:
    """The counts of one program."""

    collectives: Mapping[str, CollectiveCounts]
    """by kind"""
    triton_matmuls: int = 0
    library_matmuls: int = 0
    """by cuBLAS or cuDNN, or left to XLA's own emitter"""
    loops: tuple[int, ...] = ()
    """trip counts, in schedule order; 0 if unknown"""
    compiler_cycles: int = 0
    """what XLA:TPU estimates for the instructions that it has a model of; of GPUs it says none"""

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> ProgramCounts:
        kinds = {kind: CollectiveCounts(**one) for kind, one in data["collectives"].items()}
        return ProgramCounts(**{**data, "collectives": kinds, "loops": tuple(data["loops"])})


def counts_of(program: Program) -> ProgramCounts:
    """Count what a compiled program runs in one step."""
    collectives: dict[str, CollectiveCounts] = defaultdict(CollectiveCounts)
    triton = library = cycles = 0
    loops = []
    for instruction in program.scheduled:
        times = program.executions(instruction.name) or 1
        if has_cost_model(instruction):
            cycles += times * (estimated_cycles(instruction) or 0)
        collective = instruction.collective
        if collective is not None and not instruction.is_done:
            known = collectives[collective.kind]
            collectives[collective.kind] = _with(known, program, instruction, times)
        elif instruction.opcode == "while":
            loops.append(instruction.trip_count or 0)
        elif category(program, instruction) == "matmul" and not instruction.is_done:
            is_triton = "__triton" in instruction.backend_config
            triton += times * is_triton
            library += times * (not is_triton)
    by_kind = dict(sorted(collectives.items()))
    return ProgramCounts(by_kind, triton, library, tuple(loops), cycles)


def most_at_once(program: Program, timeline: Profile) -> int:
    """The most collectives that are in flight at a time in a simulated step."""
    events = timeline.events
    named = [text in program and program.instruction(text).collective for text in events.texts]
    rows = np.flatnonzero(np.array([bool(one) for one in named])[events["instruction"][:]])
    start = events["start_ps"][:][rows]
    end = start + events["duration_ps"][:][rows]
    # At equal times, what ends goes first.
    moments = np.concatenate([end, start])
    steps = np.concatenate([np.full(len(rows), -1), np.ones(len(rows), np.int64)])
    return int(np.cumsum(steps[np.argsort(moments, kind="stable")]).max(initial=0))


def _with(
    known: CollectiveCounts, program: Program, instruction: Instruction, times: int
) -> CollectiveCounts:
    collective = instruction.collective
    assert collective is not None
    is_asynchronous = instruction.is_start and not collective.is_sync
    return replace(
        known,
        count=known.count + times,
        bytes=known.bytes + times * collective.bytes,
        largest_bytes=max(known.largest_bytes, collective.bytes),
        arrays=known.arrays + times * max(len(instruction.operands), 1),
        asynchronous=known.asynchronous + times * is_asynchronous,
        in_loops=known.in_loops + times * (program.loop_of(instruction.name) is not None),
    )
