"""Variants are ways to compile a program; an arm is a compiled variant with its step times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from slipstream.compiler.order import Order
from slipstream.costs.coverage import check_program
from slipstream.costs.scheduler_names import looked_up
from slipstream.costs.table import CostTable
from slipstream.errors import SlipstreamError
from slipstream.jaxhooks.compiled_program import XLA_ERRORS, CompiledProgram
from slipstream.jaxhooks.jax_types import Executable, first_line
from slipstream.jaxhooks.order_pass import OrderPass, registered
from slipstream.profile.program import Program
from slipstream.sources.hlo.reader import program_from_proto

STRICT = {"xla_gpu_pgle_accuracy_checker": "PGLE_STRICTNESS_LEVEL_ERROR"}
"""makes XLA refuse a program with a missing cost: a successful compile proves that none is"""
QUIET = {"xla_gpu_pgle_accuracy_checker": "PGLE_STRICTNESS_LEVEL_OFF"}
"""keeps XLA from listing missing costs in the job's own log; the receipt counts them"""


@dataclass(frozen=True)
class Variant:
    """A way to compile the program again."""

    name: str
    flags: Mapping[str, str] = field(default_factory=dict)
    uses_costs: bool = False
    uses_order: bool = False
    """whether its instructions run in an order of our own"""

    @property
    def changes(self) -> int:
        """How many things it changes: the simpler of two variants changes fewer."""
        return len(self.flags) + self.uses_costs + self.uses_order


COSTS = Variant("costs", uses_costs=True)
NO_GRAPHS = Variant("no command buffers", {"xla_gpu_enable_command_buffer": ""})
BOTH = Variant("costs, no command buffers", NO_GRAPHS.flags, uses_costs=True)
DEFAULT_VARIANTS = (COSTS, NO_GRAPHS, BOTH)
SCHEDULE = Variant("schedule", uses_order=True)
SCHEDULE_NO_GRAPHS = Variant("schedule, no command buffers", NO_GRAPHS.flags, uses_order=True)
SCHEDULE_VARIANTS = (SCHEDULE, SCHEDULE_NO_GRAPHS)
"""with `--schedule`: an order of our own"""


@dataclass
class Arm:
    """One compiled variant, and its step times."""

    variant: Variant
    executable: Executable | None = None
    program: Program | None = None
    memory_bytes: int | None = None
    same_as: str | None = None
    """an earlier arm with the same program, instruction for instruction, run in the same way"""
    error: str | None = None
    costs_found: int | None = None
    costs_missing: int | None = None
    is_obeyed: bool | None = None
    """whether XLA compiled it in our order, where it has one"""
    is_strict: bool = False
    """whether XLA's accuracy checker confirmed that no cost was missing"""
    times_s: list[float] = field(default_factory=list)
    executable_was_made: bool = False

    @property
    def name(self) -> str:
        return self.variant.name

    @property
    def runs(self) -> bool:
        """Whether it can be timed: it compiled, and is not the same as an earlier arm."""
        return self.executable is not None and self.same_as is None


def original_arm(compiled: CompiledProgram) -> Arm:
    arm = Arm(Variant("original"), compiled.original)
    _describe(arm)
    return arm


def make_arm(
    compiled: CompiledProgram,
    variant: Variant,
    costs: bytes | None,
    table: CostTable | None,
    original: Program | None = None,
    order: Order | str | None = None,
) -> Arm:
    """Compile a variant. A failure of XLA, or to read its program, goes into the arm's `error`.

    `order` is that of a variant that has one, or why there is none. XLA's check of the costs is not
    tried if the original program already shows that some are missing: it would fail, and list them
    in the job's log.
    """
    arm = Arm(variant)
    given = costs if variant.uses_costs else None
    if variant.uses_costs and costs is None:
        arm.error = "there are no costs for this program"
        return arm
    if variant.uses_order and not isinstance(order, Order):
        arm.error = order or "there is no order for this program"
        return arm
    try:
        if variant.uses_order and isinstance(order, Order):
            _ordered(arm, compiled, order)
            return arm
        if given is not None and not _misses_costs(table, original):
            arm.executable = _strictly(compiled, variant, given)
            arm.is_strict = arm.executable is not None
        if arm.executable is None:
            quiet = QUIET if given is not None else {}
            arm.executable = compiled.recompile({**variant.flags, **quiet}, given)
        _describe(arm)
    except (SlipstreamError, *XLA_ERRORS) as error:
        arm.executable = None
        arm.error = first_line(error)
        return arm
    if given is not None and table is not None and arm.program is not None:
        found = check_program(table, arm.program)
        arm.costs_found = found.found
        arm.costs_missing = len(found.missing)
    return arm


def _ordered(arm: Arm, compiled: CompiledProgram, order: Order) -> None:
    """Compile in our order, and read back whether XLA took it."""
    with registered(OrderPass(order.sequences, order.fingerprint, order.program)) as ours:
        arm.executable = compiled.recompile(arm.variant.flags, None)
    if not ours.is_set:
        arm.executable = None
        arm.error = f"XLA did not take the order: {ours.problem or 'it never called the pass'}"
        return
    _describe(arm)
    assert arm.program is not None and ours.scheduled is not None
    arm.is_obeyed = order.is_obeyed(arm.program, program_from_proto(ours.scheduled))


def describe_made(arm: Arm, table: CostTable | None = None) -> None:
    """Describe an arm that JAX compiled, with these costs or none."""
    _describe(arm)
    if arm.variant.uses_costs and arm.program is not None:
        found = check_program(table, arm.program) if table is not None else None
        arm.costs_found = found.found if found else 0
        arm.costs_missing = len(found.missing) if found else len(list(looked_up(arm.program)))


def drop_duplicates(arms: Sequence[Arm], platform: str, in_effect: Mapping[str, str]) -> None:
    """Mark arms that are the same program, run in the same way, as an earlier arm.

    `in_effect` are the flags with which the original was compiled.
    """
    seen: dict[tuple[str, str], str] = {}
    for arm in arms:
        if arm.program is None:
            continue
        # Flags may change what the HLO does not show: generated code, or command buffers.
        flags = " ".join(
            f"{name}={value}"
            for name, value in sorted(arm.variant.flags.items())
            if _is_honoured(name, platform) and in_effect.get(name) != value
        )
        arm.same_as = seen.setdefault((arm.program.content_hash, flags), arm.name)
        if arm.same_as == arm.name:
            arm.same_as = None


def _is_honoured(flag: str, platform: str) -> bool:
    """Whether a backend reads a flag: those of XLA:GPU mean nothing to a CPU, nor to a TPU."""
    return not (flag.startswith("xla_gpu_") and platform in ("cpu", "tpu"))


def _misses_costs(table: CostTable | None, original: Program | None) -> bool:
    if table is None or original is None:
        return False
    return bool(check_program(table, original).missing)


def _strictly(compiled: CompiledProgram, variant: Variant, costs: bytes) -> Executable | None:
    """Compile with XLA's accuracy checker; None where it finds a cost missing."""
    try:
        return compiled.recompile({**variant.flags, **STRICT}, costs)
    except XLA_ERRORS:
        return None


def _describe(arm: Arm) -> None:
    assert arm.executable is not None
    arm.executable_was_made = True
    arm.program = read_program(arm.executable, arm.name)
    arm.memory_bytes = memory_of(arm.executable)


def read_program(executable: Executable, source: str) -> Program:
    """What XLA compiled, as a program; `source` names it in messages."""
    (module, *_) = executable.hlo_modules()
    return program_from_proto(module.as_serialized_hlo_module_proto(), source=source)


def memory_of(executable: Executable) -> int | None:
    """Peak bytes that a program needs on a device; None where the backend doesn't say."""
    try:
        stats = executable.get_compiled_memory_stats()
    except (RuntimeError, AttributeError):  # not every backend counts, nor has the call
        return None
    parts = ("argument", "output", "temp", "generated_code")
    total = sum(int(getattr(stats, f"{part}_size_in_bytes", 0)) for part in parts)
    return total - int(getattr(stats, "alias_size_in_bytes", 0))


def is_reordered(before: Program, after: Program) -> bool:
    """Whether two programs differ, be it only in the order of their instructions."""
    return before.content_hash != after.content_hash
