"""How a study's candidates are run: a function in one process, or a job that is launched.

FILE.py:FUNCTION            InProcess   compiled variants, step by step
-- CMD …, or a run's folder  Launched    a job for every time of a step
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slipstream.bench.timed_run import TimedRuns
from slipstream.costs.files import write_costs
from slipstream.errors import BadInput
from slipstream.flags.catalogue.catalogue import installed_catalogue
from slipstream.results.tuning import Tuning
from slipstream.simulate.recorded import recorded_costs
from slipstream.sources.load import load
from slipstream.tune.apply import COSTS_FILE
from slipstream.tune.folder import StudyConfig
from slipstream.tune.measure.in_process import Backend, InProcess
from slipstream.tune.measure.launched import Launched, in_command, set_already, with_values
from slipstream.tune.report.report import LAUNCHED, MEASURED
from slipstream.tune.space.knob import COSTS
from slipstream.tune.space.space import Space

SCREEN_SHARE = 0.3
"""of the budget, where candidates are run after the screen"""

LEAST_PATIENCE_S, CANDIDATE_SHARE = 60.0, 0.2
"""a candidate that takes longer than this share of the budget hangs, not before that"""


@dataclass(frozen=True)
class JobSpec:
    """A job, as it is to be measured; without a command the target's function is."""

    command: tuple[str, ...] = ()
    cwd: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    """on top of the user's: what `slipstream run` had set"""
    start: int = 5
    steps: int = 10

    def to_json(self) -> dict[str, Any]:
        return {
            "command": list(self.command),
            "cwd": self.cwd,
            "environment": dict(self.environment),
            "capture": [self.start, self.steps],
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> JobSpec:
        start, steps = data["capture"]
        return JobSpec(tuple(data["command"]), data["cwd"], data["environment"], start, steps)


@dataclass(frozen=True)
class BackendSetup:
    """What candidates are run with, and where it is kept."""

    measure: Backend
    space: Space
    study: str


@contextmanager
def open_backend(
    folder: Path, facts: StudyConfig, *, use_gpu: bool, progress: Callable[[str], None]
) -> Iterator[BackendSetup]:
    """The way that the study was begun with; BadInput where its target can't be run."""
    order = JobSpec.from_json(facts.measure) if facts.measure else JobSpec()
    check_runnable(facts.target, facts.objective, order)
    costs = _costs_file(folder, facts)
    if order.command:
        yield _launched(folder, facts, order, costs, progress)
        return
    module, _, function = facts.target.rpartition(":")
    with InProcess(
        module,
        function,
        use_gpu=use_gpu,
        tolerance=facts.tolerance,
        timeout_s=facts.timeout_s,
        patience_s=max(LEAST_PATIENCE_S, CANDIDATE_SHARE * facts.budget_s),
        costs=costs,
    ) as bench:
        yield BackendSetup(bench, facts.space.in_process, MEASURED)


def check_runnable(target: str, objective: str, order: JobSpec) -> None:
    """BadInput where there is nothing to run, or nothing that a run would tell."""
    if objective != "step":
        raise BadInput(
            f"the objective is {objective}, and a run tells the time of a step; measure with "
            "--objective step"
        )
    if order.command:
        if shutil.which(order.command[0], path=order.environment.get("PATH")) is None:
            raise BadInput(
                f"{order.command[0]} can't be started: it is not there; after -- comes the command "
                "as you would type it without slipstream"
            )
        return
    _, colon, function = target.rpartition(":")
    if not colon or not function.isidentifier():
        raise BadInput(
            f"{target} can't be run: it has no arguments; expected FILE.py:FUNCTION, or the job's "
            "own command: --measure -- python train.py"
        )


def winning_command(facts: StudyConfig, tuning: Tuning) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The job's command with the winner in its places, and the knobs that have one there."""
    command = JobSpec.from_json(facts.measure).command if facts.measure else ()
    defaults = {k.name: k.default for k in facts.space.knobs if in_command(k.name, command)}
    best = tuning.best.settings if tuning.best is not None else {}
    return with_values(command, {n: best.get(n, v) for n, v in defaults.items()}), tuple(defaults)


def _launched(
    folder: Path,
    facts: StudyConfig,
    order: JobSpec,
    costs: Path | None,
    progress: Callable[[str], None],
) -> BackendSetup:
    base = {**os.environ, **order.environment}
    space = facts.space.without(set_already(base), "the environment sets it already")
    typed = {k.name: k.default for k in space.knobs if in_command(k.name, order.command)}
    runs = TimedRuns(order.command, order.start, order.steps, facts.timeout_s, order.cwd, base)
    measure = Launched(
        runs,
        folder,
        installed_catalogue(),
        tolerance=facts.tolerance,
        defaults=typed,
        costs=costs,
        progress=progress,
    )
    return BackendSetup(measure, space, LAUNCHED)


def _costs_file(folder: Path, facts: StudyConfig) -> Path | None:
    """The costs as XLA reads them, for candidates that have them."""
    if facts.costs is None or facts.space.knob(COSTS) is None:
        return None
    file = (folder / COSTS_FILE).absolute()
    if not file.exists():
        write_costs(recorded_costs(facts.costs, load).for_scheduler, file)
    return file
