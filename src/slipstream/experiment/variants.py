"""Arms of a comparison: one program compiled in several ways, the original first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slipstream.costs.coverage import Coverage, check_program
from slipstream.costs.scheduler_names import looked_up
from slipstream.costs.table import CostTable
from slipstream.jaxhooks.compiled_program import XLA_ERRORS, CompiledProgram
from slipstream.profile.program import Program
from slipstream.sources.hlo.reader import program_from_proto

STRICT = {"xla_gpu_pgle_accuracy_checker": "PGLE_STRICTNESS_LEVEL_ERROR"}
"""makes XLA refuse a program of which it has not every cost, so that a success is a proof"""


@dataclass(frozen=True)
class Variant:
    """A way to compile the program again."""

    name: str
    flags: Mapping[str, str] = field(default_factory=dict)
    uses_costs: bool = False


COSTS = Variant("costs", uses_costs=True)
NO_GRAPHS = Variant("no command buffers", {"xla_gpu_enable_command_buffer": ""})
BOTH = Variant("costs, no command buffers", NO_GRAPHS.flags, uses_costs=True)
DEFAULT_VARIANTS = (COSTS, NO_GRAPHS, BOTH)


@dataclass
class Arm:
    """One compiled way, and the step times that were seen of it."""

    variant: Variant
    executable: Any = None
    program: Program | None = None
    memory_bytes: int | None = None
    same_as: str | None = None
    """the arm whose program it is, instruction for instruction"""
    error: str | None = None
    costs_found: int | None = None
    costs_missing: int | None = None
    is_strict: bool = False
    """whether XLA itself vouched that no cost was missing"""
    times_s: list[float] = field(default_factory=list)
    executable_was_made: bool = False

    @property
    def name(self) -> str:
        return self.variant.name

    @property
    def runs(self) -> bool:
        """Whether it can be timed: it compiled, and is no other arm over again."""
        return self.executable is not None and self.same_as is None


def original_arm(watched: CompiledProgram) -> Arm:
    arm = Arm(Variant("original"), watched.original)
    _describe(arm)
    return arm


def make_arm(
    watched: CompiledProgram, variant: Variant, costs: bytes | None, table: CostTable | None
) -> Arm:
    """Compile a variant; what goes wrong is noted in the arm, not raised."""
    arm = Arm(variant)
    given = costs if variant.uses_costs else None
    if variant.uses_costs and costs is None:
        arm.error = "there are no costs for this program"
        return arm
    try:
        if given is not None:
            arm.executable = _strictly(watched, variant, given)
            arm.is_strict = arm.executable is not None
        if arm.executable is None:
            arm.executable = watched.recompile(variant.flags, given)
        _describe(arm)
    except Exception as error:
        # XLA's errors, and ours where we can't read what it made: one arm less, and no more.
        arm.executable = None
        arm.error = _first_line(error)
        return arm
    if given is not None and table is not None and arm.program is not None:
        found = _coverage(table, arm.program)
        arm.costs_found = found.found
        arm.costs_missing = len(found.missing)
    return arm


def describe_made(arm: Arm, table: CostTable | None = None) -> None:
    """Describe an arm that somebody else compiled, with these costs or none."""
    _describe(arm)
    if arm.variant.uses_costs and arm.program is not None:
        found = _coverage(table, arm.program) if table is not None else None
        arm.costs_found = found.found if found else 0
        arm.costs_missing = len(found.missing) if found else len(asked_names(arm.program))


def drop_duplicates(arms: Sequence[Arm]) -> None:
    """Mark arms whose program and way to run are those of an earlier one."""
    seen: dict[tuple[str, str], str] = {}
    for arm in arms:
        if arm.program is None:
            continue
        # Flags may change what the program does not show: its code, or its command buffers.
        flags = " ".join(f"{name}={value}" for name, value in sorted(arm.variant.flags.items()))
        arm.same_as = seen.setdefault((arm.program.content_hash, flags), arm.name)
        if arm.same_as == arm.name:
            arm.same_as = None


def _strictly(watched: CompiledProgram, variant: Variant, costs: bytes) -> Any | None:
    """Compiled with XLA's own check that every cost was found; None where some were not."""
    try:
        return watched.recompile({**variant.flags, **STRICT}, costs)
    except XLA_ERRORS:
        return None


def _describe(arm: Arm) -> None:
    arm.executable_was_made = True
    (module, *_) = arm.executable.hlo_modules()
    arm.program = program_from_proto(module.as_serialized_hlo_module_proto(), source=arm.name)
    arm.memory_bytes = memory_of(arm.executable)


def memory_of(executable: Any) -> int | None:
    """Bytes that a program needs on a device at its peak, where the backend tells."""
    try:
        stats = executable.get_compiled_memory_stats()
    except (RuntimeError, AttributeError):  # not every backend counts, nor has the call
        return None
    parts = ("argument", "output", "temp", "generated_code")
    total = sum(int(getattr(stats, f"{part}_size_in_bytes", 0)) for part in parts)
    return total - int(getattr(stats, "alias_size_in_bytes", 0))


def _coverage(table: CostTable, program: Program) -> Coverage:
    return check_program(table, program)


def is_reordered(before: Program, after: Program) -> bool:
    """Whether two programs run their instructions in another order, or are not the same."""
    return before.content_hash != after.content_hash


def asked_names(program: Program) -> list[str]:
    return [instruction.name for instruction in looked_up(program)]


def _first_line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:300]
