"""What is done with the hot program, once it is known: by the orders' mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from slipstream.experiment.controller import Controller, ExperimentPlan
from slipstream.jaxhooks.compiled_program import Watched
from slipstream.jaxhooks.profiler import Outside, Session
from slipstream.run.agent.precomputed import Applier, with_given_costs
from slipstream.run.agent.recorder import Recorder, profiler_options
from slipstream.run.agent.request import APPLY, LAYOUT, PROFILE, TIME, Orders
from slipstream.run.agent.stopwatch import Stopwatch


class Measurement(Protocol):
    """What stands around each call of the hot program."""

    def on_call(self, arguments: Sequence[Any], run: Callable[[], Any]) -> Any: ...


@dataclass(frozen=True)
class Ends:
    """Who is told what came of it."""

    recorded: Callable[[dict[str, Any] | None, str], None]
    timed: Callable[[float, int], None]
    applied: Callable[[str | None], None]


def measurement_of(program: Watched, orders: Orders, fits: bool, ends: Ends) -> Measurement:
    """`fits`: whether the profile that the orders name is of this program."""
    folder, is_shared = Path(orders.folder), len(program.processes) > 1
    options = profiler_options(orders.profiler)
    if orders.mode == PROFILE:
        kind = Outside if orders.is_recorded_outside else Session
        policy = orders.policy
        return Recorder(program, folder, orders.steps, policy, options, ends.recorded, kind)
    if orders.mode in (LAYOUT, TIME):
        return Stopwatch(program, orders.steps, ends.timed)
    if orders.mode == APPLY and fits and not is_shared:
        return Applier(program, orders, ends.applied)
    plan = ExperimentPlan(
        # Ranks that agree through a folder need one that is the same for all.
        folder.parent if is_shared else folder,
        1, orders.steps, orders.rounds, orders.variants, orders.policy,
        is_recorded=fits, profiler_options=options,
    )  # fmt: skip
    return Controller(program, plan, with_given_costs(orders) if fits else None)
