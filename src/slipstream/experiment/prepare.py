"""Between capture and comparison: costs out of the profile, and the program in every variant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from slipstream.costs.table import CostTable
from slipstream.errors import SlipstreamError
from slipstream.experiment.plan import ExperimentOutcome, ExperimentPlan
from slipstream.experiment.variants import Arm, drop_duplicates, make_arm, original_arm
from slipstream.jaxhooks.compiled_program import CompiledProgram
from slipstream.jaxhooks.shutdown import raise_if_shutting_down
from slipstream.units import format_bytes

Preparation = Callable[[CompiledProgram, ExperimentPlan, ExperimentOutcome], None]
"""fills in the outcome's arms; with several processes, on all of them the same"""

Timer = Callable[[Arm, Callable[[], Any]], tuple[Any, float | None]]
"""runs one call of an arm: its result, and a step's time in seconds once the arm's turn is over"""


def prepare_arms(
    watched: CompiledProgram, plan: ExperimentPlan, outcome: ExperimentOutcome
) -> None:
    """Costs out of the profile, shared by all ranks, and the program compiled in every variant."""
    from slipstream.experiment.costing import costs_of
    from slipstream.experiment.shared_costs import shared_costs

    consensus = outcome.consensus
    own, outcome.coverage = costs_of(outcome.profiles["before"], plan.policy, watched)
    original = original_arm(watched)
    fingerprint = original.program.fingerprint if original.program else None
    table, costs = shared_costs(consensus, own, fingerprint)
    outcome.costs_bytes = costs
    _write(table, plan, outcome)
    arms = [original]
    for variant in plan.variants:
        raise_if_shutting_down()
        arms.append(make_arm(watched, variant, costs, table))
        refuse_too_big(arms[-1], original, free_bytes(watched))
    drop_duplicates(arms)
    outcome.arms = arms


def _write(table: CostTable, plan: ExperimentPlan, outcome: ExperimentOutcome) -> None:
    """For people. Ranks tune kernels together, so one that can't write compiles all the same."""
    consensus = outcome.consensus
    folder = plan.folder if consensus.is_leader else plan.folder / f"rank{consensus.rank}"
    try:
        table.write(folder / "costs.pb")
        outcome.costs = folder / "costs.pb"
    except (OSError, SlipstreamError) as problem:
        outcome.notes.append(f"the costs were not written: {problem}")


def refuse_too_big(arm: Arm, original: Arm, free: int | None) -> None:
    """An arm that would run out of memory is better known before it runs than after."""
    if free is None or arm.memory_bytes is None or original.memory_bytes is None:
        return
    more = arm.memory_bytes - original.memory_bytes
    if arm.executable is not None and more > free:
        arm.executable = None
        arm.error = (
            f"it needs {format_bytes(more)} more than the original, "
            f"and {format_bytes(free)} were left at the peak"
        )


def free_bytes(watched: CompiledProgram) -> int | None:
    """Device memory that was never used, on the fullest device; None where nobody tells."""
    found = []
    for device in watched.original.local_devices():
        stats = device.memory_stats() or {}
        limit, peak = stats.get("bytes_limit"), stats.get("peak_bytes_in_use")
        if limit is None or peak is None:
            return None
        found.append(int(limit) - int(peak))
    return min(found, default=None)


def wait(values: Any) -> None:
    import jax

    jax.block_until_ready(values)  # type: ignore[no-untyped-call]
