"""Between capture and comparison: costs from the profile, and the program compiled as each variant.

All of it runs in a thread beside the job.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from slipstream.compiler.order import Order
from slipstream.consensus.consensus import Consensus
from slipstream.costs.coverage import Coverage, check_profile
from slipstream.costs.extract import extract_costs
from slipstream.costs.table import CostTable
from slipstream.errors import BadInput, SlipstreamError
from slipstream.experiment.agreement import ballot
from slipstream.experiment.plan import ExperimentOutcome, ExperimentPlan
from slipstream.experiment.shared_costs import share_costs
from slipstream.experiment.variants import (
    Arm,
    Variant,
    drop_duplicates,
    make_arm,
    original_arm,
    read_program,
)
from slipstream.jaxhooks.compiled_program import XLA_ERRORS, CompiledProgram
from slipstream.jaxhooks.jax_types import first_line
from slipstream.jaxhooks.profiler import ProfilerFailed, check_recorded
from slipstream.jaxhooks.shutdown import (
    SHUTDOWN,
    ShuttingDown,
    raise_if_shutting_down,
    run_in_background,
)
from slipstream.profile.program import Program
from slipstream.units import format_bytes

log = logging.getLogger("slipstream")

Preparation = Callable[[CompiledProgram, ExperimentPlan, ExperimentOutcome], None]
"""fills in the outcome's arms, the same on all ranks"""


class BackgroundCompile:
    """Compiles the arms of one program in a thread, then casts this rank's vote."""

    def __init__(
        self,
        prepare: Preparation,
        compiled: CompiledProgram,
        plan: ExperimentPlan,
        outcome: ExperimentOutcome,
    ) -> None:
        self._prepare = prepare
        self._compiled = compiled
        self._plan = plan
        self._outcome = outcome
        self._worker: threading.Thread | None = None

    def begin(self, consensus: Consensus) -> None:
        self._worker = run_in_background(lambda: self._work(consensus), "slipstream")

    def join(self, timeout_s: float) -> None:
        """Wait for the compiles: Python must not shut down under them."""
        if self._worker is not None:
            self._worker.join(timeout_s)

    def _work(self, consensus: Consensus) -> None:
        try:
            self._prepare(self._compiled, self._plan, self._outcome)
            self._outcome.times.begin("vote")
            consensus.vote(ballot(self._outcome.arms, self._outcome.costs_bytes))
        except ShuttingDown as error:
            consensus.leave(str(error))
        except Exception as error:
            # Any error, bugs included: the other ranks wait for this vote. The loop ends with the
            # original program, and the traceback is in the log. When the job ends in the middle,
            # nobody needs it: Python 3.12 starts no threads any more, and so nothing can be read.
            level = logging.INFO if SHUTDOWN.is_set() else logging.WARNING
            log.log(level, "slipstream: %s was not recompiled", self._compiled.name, exc_info=True)
            consensus.leave(f"{type(error).__name__}: {error}")


def prepare_arms(
    compiled: CompiledProgram,
    plan: ExperimentPlan,
    outcome: ExperimentOutcome,
    on_costs: Callable[[], None] = lambda: None,
) -> None:
    """Extract costs from the profile, share them among ranks, and compile every variant.

    `on_costs` is called before the compiles, which may take long.
    """
    original = original_arm(compiled)
    table = _extracted(compiled, plan, outcome, original)
    if table is not None:
        on_costs()
    outcome.arms = made_arms(compiled, plan, outcome, original, table)


def made_arms(
    compiled: CompiledProgram,
    plan: ExperimentPlan,
    outcome: ExperimentOutcome,
    original: Arm,
    table: CostTable | None,
) -> list[Arm]:
    """The original, and every variant of the plan that XLA compiles and that fits."""
    arms = [original]
    with outcome.times.measured("compile"):
        for variant in plan.variants:
            raise_if_shutting_down()
            order = _order(compiled, variant, outcome) if variant.uses_order else None
            costs = outcome.costs_bytes
            arms.append(make_arm(compiled, variant, costs, table, original.program, order))
            refuse_too_big(arms[-1], original, free_bytes(compiled))
    drop_duplicates(arms, compiled.platform, compiled.flags_in_effect)
    return arms


def _order(compiled: CompiledProgram, variant: Variant, outcome: ExperimentOutcome) -> Order | str:
    """The order of a variant, or why there is none."""
    from slipstream.experiment.ordering import agreed_order

    try:
        return agreed_order(
            compiled,
            variant,
            None,
            outcome.profiles.get("before"),
            outcome.consensus,
            free_bytes(compiled),
        )
    except (SlipstreamError, *XLA_ERRORS) as problem:
        return first_line(problem)


def _extracted(
    compiled: CompiledProgram, plan: ExperimentPlan, outcome: ExperimentOutcome, original: Arm
) -> CostTable | None:
    """The costs that all ranks compile with; None if this process, on its own, has none."""
    try:
        with outcome.times.measured("extract"):
            own, outcome.coverage = costs_of(outcome.profiles["before"], plan.policy, compiled)
    except (SlipstreamError, ProfilerFailed) as problem:
        if not outcome.consensus.is_alone:
            raise
        outcome.costs_problem = str(problem)
        return None
    fingerprint = original.program.fingerprint if original.program else None
    with outcome.times.measured("merge"):
        table, outcome.costs_bytes = share_costs(outcome.consensus, own, fingerprint)
    _write_costs(table, plan, outcome)
    return table


def _write_costs(table: CostTable, plan: ExperimentPlan, outcome: ExperimentOutcome) -> None:
    """Write them for people to read. Ranks autotune together, so a failed write stops nothing."""
    consensus = outcome.consensus
    folder = plan.folder if consensus.is_leader else plan.folder / f"rank{consensus.rank}"
    try:
        table.write(folder / "costs.pb")
        outcome.costs = folder / "costs.pb"
    except (OSError, SlipstreamError) as problem:
        outcome.notes.append(f"the costs were not written: {problem}")


# Memory: an arm that would run out of it is refused before it runs.


def refuse_too_big(arm: Arm, original: Arm, free: int | None) -> None:
    """Refuse an arm that needs more memory than the original left free."""
    if free is None or arm.memory_bytes is None or original.memory_bytes is None:
        return
    more = arm.memory_bytes - original.memory_bytes
    if arm.executable is not None and more > free:
        arm.executable = None
        arm.error = (
            f"it needs {format_bytes(more)} more than the original, "
            f"and {format_bytes(free)} were left at the peak"
        )


def free_bytes(compiled: CompiledProgram) -> int | None:
    """Device memory that was never used, on the fullest device; None where it is unknown."""
    found = []
    for device in compiled.original.local_devices():
        stats = device.memory_stats() or {}
        limit, peak = stats.get("bytes_limit"), stats.get("peak_bytes_in_use")
        if limit is None or peak is None:
            return None
        found.append(int(limit) - int(peak))
    return min(found, default=None)


# Costs of one program, from a profile of it.


def costs_of(
    profile_folder: Path, policy: str, compiled: CompiledProgram
) -> tuple[CostTable, Coverage]:
    """The cost table of this program alone, and how much of the step it covers.

    A profile of another program is an error, not an empty table.
    """
    return costs_of_program(profile_folder, policy, read_program(compiled.original, compiled.name))


def costs_of_program(profile_folder: Path, policy: str, own: Program) -> tuple[CostTable, Coverage]:
    """As `costs_of`, for a program that was saved."""
    from slipstream.sources.load import load

    profile = load(profile_folder)
    check_recorded(profile)
    table = extract_costs(profile, policy)
    fitting = [
        part
        for part in table.programs
        if part.program.partition("(")[0] == own.name
        and (own.fingerprint is None or part.fingerprint in (None, own.fingerprint))
    ]
    if not fitting:
        seen = ", ".join(part.program for part in table.programs)
        raise BadInput(
            f"the profile in {profile_folder} is of {seen}, not of {own.name}; record it again"
        )
    best = max(fitting, key=lambda part: part.total_us)
    one = CostTable((replace(best, is_bound=False),), table.policy, table.facts)
    name = best.program if best.program in profile.programs else None
    return one, check_profile(one, profile, name)
