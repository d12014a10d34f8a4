"""What the agent does with the hot program once it is known, by the request's mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from slipstream.experiment.controller import Controller
from slipstream.experiment.plan import ExperimentPlan
from slipstream.experiment.step_timer import MeanStepTimer
from slipstream.jaxhooks.compiled_program import CompiledProgram
from slipstream.jaxhooks.profiler import ExternalSession, ProfilerSession
from slipstream.run.agent.precomputed import Applier, with_precomputed_costs
from slipstream.run.agent.recorded_phases import saving_phases
from slipstream.run.agent.recorder import Recorder, profiler_options
from slipstream.run.agent.request import APPLY, LAYOUT, LOOP, PROFILE, TIME, Request


class Measurement(Protocol):
    """Wraps each call of the hot program."""

    def on_call(self, arguments: Sequence[Any], run: Callable[[], Any]) -> Any: ...


@dataclass(frozen=True)
class Callbacks:
    """Called with the result of a measurement."""

    recorded: Callable[[dict[str, Any] | None, str], None]
    timed: Callable[[float, int], None]
    applied: Callable[[str | None], None]


def measurement_for(
    program: CompiledProgram, request: Request, fits: bool, callbacks: Callbacks, number: int = 1
) -> Measurement:
    """The measurement of one program, the job's first or another.

    `fits`: whether the profile that the request names is of this program.
    """
    folder, is_shared = Path(request.folder), len(program.processes) > 1
    options = profiler_options(request.profiler)
    if request.mode == PROFILE:
        session = ExternalSession if request.is_recorded_outside else ProfilerSession
        return Recorder(
            program, folder, request.steps, request.policy, options, callbacks.recorded, session
        )
    if request.mode in (LAYOUT, TIME):
        return MeanStepTimer(program, request.steps, callbacks.timed)
    if request.mode == APPLY and fits and not is_shared:
        return Applier(program, request, callbacks.applied)
    # Ranks that agree through a folder need one that is the same for all.
    own = folder.parent if is_shared else folder
    plan = ExperimentPlan(
        own if number == 1 else own / f"function{number}",
        1, request.steps, request.rounds, request.variants, request.policy,
        is_recorded=fits, profiler_options=options,
    )  # fmt: skip
    if fits:
        return Controller(program, plan, with_precomputed_costs(request))
    is_saved = request.mode == LOOP and number == 1
    return Controller(program, plan, saving_phases(request) if is_saved else None)
