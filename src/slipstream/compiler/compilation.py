"""What a compile gives: the program, what XLA said, and what it needs of each device's memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from slipstream.analyses.soundness import soundness
from slipstream.compiler.messages import CompilerMessage
from slipstream.machines.machine import Machine
from slipstream.profile.program import Program
from slipstream.sources.hlo.reader import program_from_proto


@dataclass(frozen=True)
class MemoryUse:
    """What one device holds while the program runs, as XLA planned it."""

    arguments_bytes: int
    outputs_bytes: int
    temporaries_bytes: int
    code_bytes: int
    aliased_bytes: int
    """outputs that take the place of arguments (donated buffers)"""
    capacity_bytes: int
    """what the device has"""
    host_bytes: int = 0
    """what is kept in the host's memory instead"""

    @property
    def peak_bytes(self) -> int:
        """All at once; arguments stay for the whole step."""
        lasting = self.arguments_bytes + self.outputs_bytes - self.aliased_bytes
        return lasting + self.temporaries_bytes + self.code_bytes

    @property
    def fits(self) -> bool:
        return self.peak_bytes <= self.capacity_bytes


@dataclass(frozen=True)
class Compilation:
    """One compiled program, with everything that is known of how it came about."""

    proto: Path
    """the serialized HloModuleProto, in the cache"""
    log: Path
    """all that XLA wrote, in the cache"""
    logged: tuple[CompilerMessage, ...]
    """what XLA said of it, and what is to be said of the machine and its memory"""
    memory: MemoryUse
    seconds: float
    """what lowering and compiling took, when they ran"""
    is_cached: bool
    machine: Machine
    target: str
    """what was compiled, for people: `examples/gpt.py:build`"""
    versions: Mapping[str, str] = field(default_factory=dict)
    """of Python, jax, jaxlib and the GPU plugin"""
    flags: Mapping[str, str] = field(default_factory=dict)
    devices: int = 1
    """how many devices the program runs on"""

    @cached_property
    def messages(self) -> tuple[CompilerMessage, ...]:
        """All that is to be said: first whether the program is wrong, which XLA does not see."""
        wrong = soundness(self.program)
        if wrong.is_sound:
            return self.logged
        message = CompilerMessage("wrong-results", wrong.text, "error", wrong.first.instruction)
        return (message, *self.logged)

    @cached_property
    def program(self) -> Program:
        """The optimised, scheduled program."""
        jaxlib = self.versions.get("jaxlib")
        data = self.proto.read_bytes()
        return program_from_proto(
            data, source=str(self.proto), jaxlib_version=jaxlib, flags=self.flags
        )
