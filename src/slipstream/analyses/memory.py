"""How much device memory a program needs, when, and which buffers make the peak.

bytes   ┌──────────────────────────── arguments: all of the time
        │      ▂▄▆█▆▄▂                temporaries: from their instruction to their last use
        │            ▲ the peak, and what is alive then
        └──────────────────────────── results that don't replace an argument

Counted from the program: a value is alive from its instruction to its last use, through tuples,
loops and asynchronous operations; loops and updates in place share one buffer, as in XLA's buffer
assignment.  XLA packs buffers into one block, and fragmentation adds to it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

from slipstream.analyses.collectives import known_chip
from slipstream.analyses.labels import Label, label_of
from slipstream.analyses.liveness import ARGUMENT, CONSTANT, RESULT, Buffer, Liveness
from slipstream.analyses.op_groups import grouped
from slipstream.analyses.summary import programs
from slipstream.inline import Inline
from slipstream.profile.profile import Profile
from slipstream.profile.program import Program
from slipstream.profile.semantics.dataflow import parameter_path
from slipstream.profile.semantics.layers import rolled_description, rolled_scope

MAKERS = 20
"""how many of the buffers at the peak, and of their groups, are listed"""


@dataclass(frozen=True)
class Maker:
    """One buffer that is alive at the peak."""

    instruction: str
    bytes: int
    kind: str
    """`argument`, `result` or `temporary`"""
    shape: str
    last_use: str
    """the instruction that uses it last; empty if it is alive to the end"""
    phase: str = ""
    scope: str = ""
    source: str = ""
    description: str = ""


@dataclass(frozen=True)
class MakerGroup(Maker):
    """Equal buffers, of unrolled layers for example: `bytes` of all of them together."""

    instructions: tuple[str, ...] = ()
    """all of them, in the order of `makers`"""


@dataclass(frozen=True)
class ProgramMemory:
    """Memory of one program on one device, in bytes."""

    program: str
    arguments_bytes: int
    results_bytes: int
    aliased_bytes: int
    """results that replace (donated) arguments"""
    constants_bytes: int
    temporaries_bytes: int
    """peak of the temporaries"""
    host_bytes: int
    """peak of the values in host memory, including arguments and results"""
    peak_at: str
    """instruction at which temporaries reach their peak"""
    peak_source: str
    peak_description: str
    makers: tuple[Maker, ...]
    """buffers alive at the peak, largest first"""
    timeline: tuple[tuple[str, int], ...]
    """(instruction, bytes of temporaries while it runs) in schedule order; loops run once"""
    groups: tuple[MakerGroup, ...] = ()
    """what is alive at the peak, equal buffers as one, most bytes first"""

    @property
    def peak_bytes(self) -> int:
        """Arguments, results, constants and the peak of the temporaries."""
        lasting = self.arguments_bytes + self.results_bytes - self.aliased_bytes
        return lasting + self.constants_bytes + self.temporaries_bytes


@dataclass(frozen=True)
class Memory(Inline):
    """Memory of each program of a profile."""

    model: str
    capacity_bytes: int | None
    """of the device; None if its model is unknown"""
    programs: tuple[ProgramMemory, ...]
    """the one with the most device time first"""
    notes: tuple[str, ...] = ()


def memory(profile: Profile) -> Memory:
    """The memory of each program that the profile contains."""
    model = next((device.model for device in profile.devices if device.model), "")
    hardware = known_chip(model)
    ran = [found.name for found in programs(profile)]
    known = [name for name in ran if name in profile.programs]
    notes = []
    if len(known) < len(ran):
        missing = [name for name in ran if name not in profile.programs]
        notes.append(f"the profile does not contain {', '.join(missing[:5])}")
    found = tuple(program_memory(profile.programs[name], name) for name in known)
    capacity = hardware.memory_bytes if hardware else None
    return Memory(model, capacity, found, tuple(notes))


def program_memory(program: Program, name: str = "") -> ProgramMemory:
    """The memory that a compiled program needs on one device."""
    liveness = Liveness(program)
    lasting = [b for b in liveness.buffers if b.kind in (ARGUMENT, RESULT) and not b.is_host]
    largest = sorted((*lasting, *liveness.alive), key=lambda buffer: -buffer.bytes)
    makers = [_maker(program, name, buffer, liveness) for buffer in largest]
    at = _label(program, name, liveness.peak_at)
    return ProgramMemory(
        program=name or program.name,
        arguments_bytes=liveness.total(ARGUMENT),
        results_bytes=liveness.results_bytes,
        aliased_bytes=liveness.aliased_bytes,
        constants_bytes=liveness.total(CONSTANT),
        temporaries_bytes=liveness.peak_bytes,
        host_bytes=liveness.host_bytes,
        peak_at=liveness.peak_at,
        peak_source=at.source,
        peak_description=at.description,
        makers=tuple(makers[:MAKERS]),
        timeline=tuple(liveness.timeline),
        groups=_groups(makers),
    )


def _groups(makers: Iterable[Maker]) -> tuple[MakerGroup, ...]:
    """Equal buffers as one: the same kind and shape, made by equal ops."""
    found = [_group(same) for same in grouped(makers, _key)]
    return tuple(sorted(found, key=lambda group: -group.bytes)[:MAKERS])


def _key(maker: Maker) -> Hashable:
    if not maker.description:
        return maker.instruction
    scope, description = rolled_scope(maker.scope), _rolled(maker)
    return (maker.kind, maker.shape, maker.phase, scope, maker.source, description)


def _rolled(maker: Maker) -> str:
    """The description without numbers of layers; an argument's is a path, as a scope is."""
    of = rolled_scope if maker.kind == ARGUMENT else rolled_description
    return of(maker.description)


def _group(same: Sequence[Maker]) -> MakerGroup:
    first, names = same[0], tuple(maker.instruction for maker in same)
    if len(same) > 1:
        scope, description = rolled_scope(first.scope), _rolled(first)
        total = sum(maker.bytes for maker in same)
        first = replace(first, scope=scope, description=description, bytes=total, last_use="")
    return MakerGroup(**vars(first), instructions=names)


def _maker(program: Program, name: str, buffer: Buffer, liveness: Liveness) -> Maker:
    named = _label(program, name, buffer.instruction)
    description = named.description
    if buffer.kind == ARGUMENT and buffer.instruction in program:
        # A short name would be that of a weight and of its optimizer's state, too.
        description = parameter_path(program.instruction(buffer.instruction).op_name)
    return Maker(
        instruction=buffer.instruction,
        bytes=buffer.bytes,
        kind=buffer.kind,
        shape=buffer.shape,
        last_use=liveness.last_use(buffer),
        phase=named.phase,
        scope=named.scope,
        source=named.source,
        description=description,
    )


def _label(program: Program, name: str, instruction: str) -> Label:
    if instruction not in program:
        return Label(name, instruction)
    return label_of(name, program, program.instruction(instruction))
