"""The result of a compile: the program, XLA's messages, and the memory each device needs."""

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

MEMORY_LIMIT = "memory-limit"
"""code of the message about temporaries at the limit of XLA's scheduler"""


@dataclass(frozen=True)
class MemoryUse:
    """Memory that one device needs to run the program, as planned by XLA."""

    arguments_bytes: int
    outputs_bytes: int
    temporaries_bytes: int
    code_bytes: int
    aliased_bytes: int
    """outputs that reuse the buffers of donated arguments"""
    capacity_bytes: int
    """the device's memory"""
    host_bytes: int = 0
    """data kept in host memory instead"""

    @property
    def lasting_bytes(self) -> int:
        """Arguments and outputs, which stay allocated for the whole step."""
        return self.arguments_bytes + self.outputs_bytes - self.aliased_bytes

    @property
    def peak_bytes(self) -> int:
        """The total."""
        return self.lasting_bytes + self.temporaries_bytes + self.code_bytes

    def planned_bytes(self, pool_bytes: float, slop_factor: int = 95) -> float:
        """Temporaries that XLA's scheduler plans with (`GetSchedulerMemoryLimit`).

        `slop_factor` is XLA's flag `xla_gpu_memory_limit_slop_factor`, in per cent.
        """
        return (pool_bytes - self.lasting_bytes) * slop_factor / 100

    @property
    def fits(self) -> bool:
        return self.peak_bytes <= self.capacity_bytes


@dataclass(frozen=True)
class Compilation:
    """One compiled program, and how it was compiled."""

    proto: Path
    """the serialized HloModuleProto, in the cache"""
    log: Path
    """XLA's log, in the cache"""
    logged: tuple[CompilerMessage, ...]
    """XLA's messages, and ours about the machine and its memory"""
    memory: MemoryUse
    seconds: float
    """time for lowering and compiling, when they ran"""
    is_cached: bool
    machine: Machine
    target: str
    """what was compiled, such as `examples/gpt.py:build`"""
    versions: Mapping[str, str] = field(default_factory=dict)
    """of Python, jax, jaxlib and the GPU plugin"""
    flags: Mapping[str, str] = field(default_factory=dict)
    devices: int = 1
    """how many devices the program runs on"""

    @cached_property
    def messages(self) -> tuple[CompilerMessage, ...]:
        """All messages; first whether XLA miscompiled the program."""
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
