"""What of a device's memory a program needs, when, and who makes the peak.

bytes   ┌──────────────────────────── arguments: all of the time
        │      ▂▄▆█▆▄▂                temporaries: from their instruction to their last use
        │            ▲ the peak, and what is alive then
        └──────────────────────────── results that take no argument's place

Counted from the program: a value lives from its instruction to the last that uses it, through
tuples, loops and asynchronous operations; loops and updates in place share one buffer, as XLA's
buffer assignment has it.  XLA packs buffers into one block, and what doesn't pack well adds to it.
"""

from __future__ import annotations

from dataclasses import dataclass

from slipstream.analyses.collectives import known_gpu
from slipstream.analyses.labels import Label, label_of
from slipstream.analyses.liveness import ARGUMENT, CONSTANT, RESULT, Buffer, Liveness
from slipstream.analyses.summary import programs
from slipstream.profile.profile import Profile
from slipstream.profile.program import Program

MAKERS = 20
"""how many buffers of the peak are listed"""


@dataclass(frozen=True)
class Maker:
    """One buffer that is alive at the peak."""

    instruction: str
    bytes: int
    kind: str
    """`argument`, `result` or `temporary`"""
    shape: str
    last_use: str
    """the instruction that needs it last; empty where it lasts to the end"""
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
    """results that take the place of arguments (donated)"""
    constants_bytes: int
    temporaries_bytes: int
    """the most that temporaries take at once"""
    host_bytes: int
    """the most that values in host memory take at once, arguments and results with it"""
    peak_at: str
    """instruction at which temporaries take most"""
    peak_source: str
    peak_description: str
    makers: tuple[Maker, ...]
    """what is alive then, the largest first"""
    timeline: tuple[tuple[str, int], ...]
    """bytes of temporaries while each instruction of the schedule runs; loops as one turn"""

    @property
    def peak_bytes(self) -> int:
        """Everything at once."""
        lasting = self.arguments_bytes + self.results_bytes - self.aliased_bytes
        return lasting + self.constants_bytes + self.temporaries_bytes


@dataclass(frozen=True)
class Memory:
    """Memory of each program of a profile."""

    model: str
    capacity_bytes: int | None
    """of the device; None if its model isn't known"""
    programs: tuple[ProgramMemory, ...]
    """the one with the most device time first"""
    notes: tuple[str, ...] = ()


def memory(profile: Profile) -> Memory:
    """What each program of the profile needs, where the profile has a copy of it."""
    model = next((device.model for device in profile.devices if device.model), "")
    hardware = known_gpu(model)
    ran = [found.name for found in programs(profile)]
    known = [name for name in ran if name in profile.programs]
    notes = []
    if len(known) < len(ran):
        missing = [name for name in ran if name not in profile.programs]
        notes.append(f"the profile has no copy of {', '.join(missing[:5])}")
    found = tuple(program_memory(profile.programs[name], name) for name in known)
    capacity = hardware.memory_bytes if hardware else None
    return Memory(model, capacity, found, tuple(notes))


def program_memory(program: Program, name: str = "") -> ProgramMemory:
    """What a compiled program needs of one device's memory."""
    lives = Liveness(program)
    lasting = [b for b in lives.buffers if b.kind in (ARGUMENT, RESULT) and not b.is_host]
    makers = sorted((*lasting, *lives.alive), key=lambda buffer: -buffer.bytes)
    at = _label(program, name, lives.peak_at)
    return ProgramMemory(
        name or program.name,
        lives.total(ARGUMENT),
        lives.results_bytes,
        lives.aliased_bytes,
        lives.total(CONSTANT),
        lives.peak_bytes,
        lives.host_bytes,
        lives.peak_at,
        at.source,
        at.description,
        tuple(_maker(program, name, buffer, lives) for buffer in makers[:MAKERS]),
        tuple(lives.timeline),
    )


def _maker(program: Program, name: str, buffer: Buffer, lives: Liveness) -> Maker:
    named = _label(program, name, buffer.instruction)
    return Maker(
        buffer.instruction,
        buffer.bytes,
        buffer.kind,
        buffer.shape,
        lives.last_use(buffer),
        named.phase,
        named.scope,
        named.source,
        named.description,
    )


def _label(program: Program, name: str, instruction: str) -> Label:
    if instruction not in program:
        return Label(name, instruction)
    return label_of(name, program, program.instruction(instruction))
