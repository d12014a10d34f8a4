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

from dataclasses import dataclass

from slipstream.analyses.collectives import known_chip
from slipstream.analyses.labels import Label, label_of
from slipstream.analyses.liveness import ARGUMENT, CONSTANT, RESULT, Buffer, Liveness
from slipstream.analyses.summary import programs
from slipstream.inline import Inline
from slipstream.profile.profile import Profile
from slipstream.profile.program import Program

MAKERS = 20
"""how many of the buffers at the peak are listed"""


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
    makers = sorted((*lasting, *liveness.alive), key=lambda buffer: -buffer.bytes)
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
        makers=tuple(_maker(program, name, buffer, liveness) for buffer in makers[:MAKERS]),
        timeline=tuple(liveness.timeline),
    )


def _maker(program: Program, name: str, buffer: Buffer, liveness: Liveness) -> Maker:
    named = _label(program, name, buffer.instruction)
    return Maker(
        instruction=buffer.instruction,
        bytes=buffer.bytes,
        kind=buffer.kind,
        shape=buffer.shape,
        last_use=liveness.last_use(buffer),
        phase=named.phase,
        scope=named.scope,
        source=named.source,
        description=named.description,
    )


def _label(program: Program, name: str, instruction: str) -> Label:
    if instruction not in program:
        return Label(name, instruction)
    return label_of(name, program, program.instruction(instruction))
