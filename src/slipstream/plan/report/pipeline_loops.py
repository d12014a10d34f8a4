"""Loops that are pipelines: each turn, every stage works on one microbatch and hands it on.

turn      0   1   2   3   4   5      8 devices, pairs (0→2), (2→4), (4→6), (1→3), … : chains of 4
stage 0   a   b   c   ·   ·   ·      3 microbatches take 6 turns
stage 1   ·   a   b   c   ·   ·      in 3 of 6 turns a stage has nothing of use to do,
stage 2   ·   ·   a   b   c   ·      and computes all the same
stage 3   ·   ·   ·   a   b   c

A loop counts as a pipeline if it passes a whole value of its state along open chains of devices.
Rings (of attention, or of products that overlap with their communication) are closed, and an
exchange of halos sends slices.  A pipeline whose last stage hands on to the first is a ring too: it
is not recognised.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from slipstream.profile.program import Instruction, Program

_UNCHANGED = frozenset(("bitcast", "copy", "convert", "reshape", "transpose"))


@dataclass(frozen=True)
class PipelineLoop:
    """A loop whose turns move microbatches from stage to stage."""

    stages: int
    turns: int

    @property
    def bubble(self) -> float:
        """The share of the turns in which a stage has no microbatch."""
        return (self.stages - 1) / self.turns


def pipeline_loops(program: Program) -> dict[str, PipelineLoop]:
    """The pipelines of a program, by the name of the loop."""
    found: dict[str, set[int]] = {}
    for loop, stages in _hand_overs(program):
        found.setdefault(loop.name, set()).add(stages)
    loops = {}
    for name, lengths in found.items():
        turns, stages = program.instruction(name).trip_count, max(lengths)
        # Chains of several lengths are not one pipeline.
        if len(lengths) == 1 and turns is not None and turns >= stages:
            loops[name] = PipelineLoop(stages, turns)
    return loops


def _hand_overs(program: Program) -> Iterator[tuple[Instruction, int]]:
    """(loop, stages) of each permutation that hands a value of the loop's state on."""
    for instruction in program.scheduled:
        collective = instruction.collective
        if collective is None or collective.kind != "collective-permute" or instruction.is_done:
            continue
        loop = program.loop_of(instruction.name)
        stages = chain_length(collective.source_target_pairs)
        if loop is not None and stages is not None and _is_state(program, instruction):
            yield loop, stages


def _is_state(program: Program, permute: Instruction) -> bool:
    """Whether it moves a value that the turn before left, whole."""
    operands = program.operands(permute)
    value = operands[0] if operands else None
    while value is not None and value.opcode in _UNCHANGED:
        value = next(iter(program.operands(value)), None)
    if value is None or value.opcode != "get-tuple-element":
        return False
    return all(source.opcode == "parameter" for source in program.operands(value))


def chain_length(pairs: Sequence[tuple[int, int]]) -> int | None:
    """The devices in each chain of a permutation; None if it has rings, or chains of any length."""
    after = dict(pairs)
    targets = set(after.values())
    if len(after) != len(pairs) or len(targets) != len(pairs):
        return None
    lengths = set()
    visited = 0
    for first in after.keys() - targets:
        length, device = 1, first
        while device in after:
            device, length = after[device], length + 1
        lengths.add(length)
        visited += length - 1
    is_open = visited == len(pairs)  # what starts nowhere is a ring
    return lengths.pop() if is_open and len(lengths) == 1 else None
