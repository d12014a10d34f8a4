"""What a program has that knobs affect: collectives, loops, matmuls, host copies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from slipstream.errors import BadInput
from slipstream.flags.thresholds.thresholds import Thresholds, thresholds
from slipstream.machines.machine import Machine
from slipstream.profile.program import Program
from slipstream.profile.semantics.categories import category

UNROLL_LIMIT = 20_000
"""largest unrolled size of a loop, in instructions: beyond it a compile takes minutes"""


@dataclass(frozen=True)
class ProgramTraits:
    """The traits of one program on one machine that decide which knobs matter."""

    devices: int
    hosts: int
    collectives: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """sizes in bytes, by kind, largest first"""
    in_loops: frozenset[str] = frozenset()
    """kinds of collectives that run inside loops"""
    loops: int = 0
    unrolled_size: int = 0
    """instructions of all loops, if they were unrolled"""
    matmuls: int = 0
    host_copies: int = 0
    layers: Thresholds | None = None

    @property
    def has_collectives(self) -> bool:
        return bool(self.collectives)

    @property
    def can_unroll(self) -> bool:
        return 0 < self.unrolled_size <= UNROLL_LIMIT


def traits_of(program: Program, machine: Machine) -> ProgramTraits:
    """The traits of a compiled program."""
    sizes: dict[str, list[int]] = defaultdict(list)
    in_loops: set[str] = set()
    matmuls = copies = 0
    for instruction in program.scheduled:
        collective = instruction.collective
        if collective is not None and not instruction.is_done:
            sizes[collective.kind].append(collective.bytes)
            if program.loop_of(instruction.name) is not None:
                in_loops.add(collective.kind)
        elif category(program, instruction) == "matmul":
            matmuls += 1
        elif any(one.shape.on_host for one in (instruction, *program.operands(instruction))):
            copies += not instruction.is_done
    loops = [i for i in program.scheduled if i.opcode == "while" and (i.trip_count or 2) > 1]
    return ProgramTraits(
        devices=machine.devices,
        hosts=machine.hosts,
        collectives={kind: tuple(sorted(found, reverse=True)) for kind, found in sizes.items()},
        in_loops=frozenset(in_loops),
        loops=len(loops),
        unrolled_size=sum(
            (i.trip_count or 0) * _size(program, i.called[0]) for i in loops if i.called
        ),
        matmuls=matmuls,
        host_copies=copies,
        layers=_layers(program),
    )


def _size(program: Program, computation: str) -> int:
    return len(program.computations[computation].instructions)


def _layers(program: Program) -> Thresholds | None:
    """The sizes of a layer; None for a program without weights."""
    try:
        return thresholds(program)
    except BadInput:
        return None
