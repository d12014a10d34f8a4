"""Backends that time candidates: a function in one process, or a job that is launched.

FILE.py:FUNCTION              InProcess   compiled variants, step by step
-- CMD …, or a run's folder   Launched    one job for every timing
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from slipstream.bench.timed_run import TimedRuns
from slipstream.costs.files import write_costs
from slipstream.errors import BadInput
from slipstream.flags.catalogue.catalogue import installed_catalogue
from slipstream.results.tuning import Tuning
from slipstream.simulate.recorded import recorded_costs
from slipstream.sources.load import load
from slipstream.tune.apply import COSTS_FILE
from slipstream.tune.measure.in_process import Backend, InProcess
from slipstream.tune.measure.launched import (
    Launched,
    fill_placeholders,
    is_placeholder,
    set_already,
)
from slipstream.tune.space.knob import COSTS
from slipstream.tune.space.space import Space
from slipstream.tune.study_folder import JobSpec, StudyConfig

SCREEN_SHARE = 0.3
"""share of the budget for the simulated search, if candidates are measured afterwards"""

LEAST_PATIENCE_S, CANDIDATE_SHARE = 60.0, 0.2
"""a candidate hangs if it takes longer than this share of the budget, and at least this long"""


@contextmanager
def open_backend(
    folder: Path, config: StudyConfig, *, use_gpu: bool, progress: Callable[[str], None]
) -> Iterator[tuple[Backend, Space]]:
    """The backend that the study was started with, and the knobs that it can set."""
    job = config.measure or JobSpec()
    check_runnable(config.target, config.objective, job)
    costs = _costs_file(folder, config)
    if job.command:
        yield _launched(folder, config, job, costs, progress)
        return
    module, _, function = config.target.rpartition(":")
    with InProcess(
        module,
        function,
        use_gpu=use_gpu,
        tolerance=config.tolerance,
        timeout_s=config.timeout_s,
        patience_s=max(LEAST_PATIENCE_S, CANDIDATE_SHARE * config.budget_s),
        costs=costs,
    ) as backend:
        yield backend, config.space.in_process


def check_runnable(target: str, objective: str, job: JobSpec) -> None:
    """BadInput if there is nothing to run, or if a run can't measure the objective."""
    if objective != "step":
        raise BadInput(
            f"the objective is {objective}, but a run measures the time of a step; use --measure "
            "with --objective step"
        )
    if job.command:
        if shutil.which(job.command[0], path=job.environment.get("PATH")) is None:
            raise BadInput(
                f"{job.command[0]} can't be started: it does not exist; after --, write the "
                "command as you would type it without slipstream"
            )
        return
    _, colon, function = target.rpartition(":")
    if not colon or not function.isidentifier():
        raise BadInput(
            f"{target} can't be run: it has no arguments; expected FILE.py:FUNCTION, or the job's "
            "own command: --measure -- python train.py"
        )


def winning_command(config: StudyConfig, tuning: Tuning) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The job's command with the winner's values, and the knobs that are placeholders in it."""
    command = config.measure.command if config.measure is not None else ()
    defaults = {k.name: k.default for k in config.space.knobs if is_placeholder(k.name, command)}
    best = tuning.best.settings if tuning.best is not None else {}
    values = {name: best.get(name, default) for name, default in defaults.items()}
    return fill_placeholders(command, values), tuple(defaults)


def _launched(
    folder: Path,
    config: StudyConfig,
    job: JobSpec,
    costs: Path | None,
    progress: Callable[[str], None],
) -> tuple[Backend, Space]:
    base = {**os.environ, **job.environment}
    space = config.space.without(set_already(base), "already set in the environment")
    defaults = {k.name: k.default for k in space.knobs if is_placeholder(k.name, job.command)}
    runs = TimedRuns(job.command, job.start, job.steps, config.timeout_s, job.cwd, base)
    backend = Launched(
        runs,
        folder,
        installed_catalogue(),
        tolerance=config.tolerance,
        defaults=defaults,
        costs=costs,
        progress=progress,
    )
    return backend, space


def _costs_file(folder: Path, config: StudyConfig) -> Path | None:
    """Measured costs in XLA's format, for candidates that use them."""
    if config.costs is None or config.space.knob(COSTS) is None:
        return None
    file = (folder / COSTS_FILE).absolute()
    if not file.exists():
        write_costs(recorded_costs(config.costs, load).for_scheduler, file)
    return file
