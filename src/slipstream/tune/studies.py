"""`slipstream tune` as a service: start a study, resume it, measure its best candidates, show it.

start ──► study folder ──► resume: search on the simulator ──► measure: time the best ──► show
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from slipstream.compiler.compile import compiler, machine_of
from slipstream.compiler.targets import Target
from slipstream.errors import BadInput
from slipstream.flags.catalogue.catalogue import installed_catalogue
from slipstream.results.tuning import Tuning
from slipstream.simulate.recorded import RecordedCosts, recorded_costs
from slipstream.sources.load import load
from slipstream.tune.measure.backends import SCREEN_SHARE, check_runnable, open_backend
from slipstream.tune.measure.measured_search import measure_candidates
from slipstream.tune.outcome import Outcome, check_objective
from slipstream.tune.ray.connection import connected
from slipstream.tune.report.reasons import layer_sizes
from slipstream.tune.report.report import report, with_measured
from slipstream.tune.run_folder import as_target
from slipstream.tune.search.screen import TIMEOUT_S, ScreenSpec
from slipstream.tune.search.search import MakeRunner, OnResult, Search
from slipstream.tune.search.seeds import seeds
from slipstream.tune.space.program_traits import traits_of
from slipstream.tune.space.space import SpaceOptions, space_of
from slipstream.tune.study_folder import (
    DEFAULT_FOLDER,
    JobSpec,
    StudyConfig,
    has_study,
    open_study,
    read_study,
    target_of,
    write_study,
)

MOST_JOBS = 4
"""default limit of concurrent compilers: each needs a core and a gigabyte or two"""
Progress = Callable[[str], None]


@dataclass(frozen=True)
class TuneOptions:
    """The options of a new study."""

    on: str = "8xH200"
    objective: str = "step"
    trials: int = 60
    budget_s: float = 600.0
    folder: Path = Path(DEFAULT_FOLDER)
    storage: str | None = None
    study_prefix: str = ""
    """in front of the names of its studies, in a storage that others use too"""
    jobs: int | None = None
    costs: str | None = None
    space: SpaceOptions = field(default_factory=SpaceOptions)
    most_memory_bytes: int | None = None
    tolerance: float = 0.01
    timeout_s: float = TIMEOUT_S
    seed: int = 0
    ray: str | None = None
    """the address of a Ray cluster"""
    measure: JobSpec | None = None
    """how to time the best candidates after the search; None to only simulate"""


def tune(
    target: str | Target,
    options: TuneOptions,
    *,
    on_result: OnResult = lambda candidate, outcome: None,
    progress: Progress = lambda text: None,
) -> Tuning:
    """Start a study and run it."""
    if has_study(options.folder):
        raise BadInput(
            f"{options.folder} already holds a study; continue it: slipstream tune resume "
            f"{options.folder}, or name another folder: --study DIR"
        )
    # Connect first: an unreachable cluster should fail before the first compiles.
    with connected(options.ray):
        start(target, options, progress)
        return resume(
            options.folder,
            jobs=options.jobs,
            ray=options.ray,
            on_result=on_result,
            progress=progress,
        )


def start(
    target: str | Target, options: TuneOptions, progress: Progress = lambda text: None
) -> StudyConfig:
    """Lower and compile the target, find its knobs, write the folder and queue the seeds."""
    check_objective(options.objective)
    label = target.label if isinstance(target, Target) else target
    if options.measure is not None:
        check_runnable(label, options.objective, options.measure)
    machine, catalogue = machine_of(options.on), installed_catalogue()
    program_or_path, own_costs = (target, None) if isinstance(target, Target) else as_target(target)
    costs_path = options.costs or own_costs
    with compiler(program_or_path, on=machine, progress=progress) as session:
        lowered = session.portable_target()
    with compiler(lowered, on=machine, progress=progress, program_only=True) as session:
        program = session.compile().program
    progress("looking for knobs")
    traits = traits_of(program, machine)
    space = space_of(
        traits,
        catalogue,
        is_measured=True,
        is_launched=True,
        has_costs=costs_path is not None,
        is_tpu=machine.kind == "tpu",
        options=options.space,
    )
    if not space.knobs:
        raise BadInput(
            f"no knobs are left for {label} on {machine.spec}: all are forbidden or have no "
            "effect; allow more, or add one with --add NAME=VALUE,VALUE"
        )
    config = StudyConfig(
        target=label,
        kind=lowered.kind,
        machine=options.on,
        program=program.name,
        objective=options.objective,
        jaxlib=catalogue.jaxlib_version,
        space=space,
        devices=lowered.devices,
        options=lowered.options,
        storage=options.storage,
        study_prefix=options.study_prefix,
        costs=costs_path,
        most_memory_bytes=options.most_memory_bytes,
        tolerance=options.tolerance,
        trials=options.trials,
        budget_s=options.budget_s,
        timeout_s=options.timeout_s,
        seed=options.seed,
        measure=options.measure,
        layers=layer_sizes(traits, space),
    )
    write_study(options.folder, config, lowered.content)
    with closing(open_study(options.folder, config)) as study:
        most_probes = max(options.trials // 2, 1)
        study.enqueue(seeds(space.screened, traits, catalogue, machine.chip.name, most_probes))
    return config


def resume(
    folder: Path,
    *,
    jobs: int | None = None,
    trials: int | None = None,
    budget_s: float | None = None,
    ray: str | None = None,
    on_result: OnResult = lambda candidate, outcome: None,
    progress: Progress = lambda text: None,
) -> Tuning:
    """Continue a study: finished trials stay, interrupted ones are tried again.

    With `ray`, the address of a Ray cluster, candidates are evaluated there.
    """
    config = read_study(folder)
    config = replace(config, trials=trials or config.trials, budget_s=budget_s or config.budget_s)
    end = time.monotonic() + config.budget_s
    check_same_jaxlib(config)
    screen_s = config.budget_s * (SCREEN_SHARE if config.measure is not None else 1)
    # When compile time is the objective, compilers must not compete for cores.
    jobs = 1 if config.objective == "compile" else jobs
    with closing(open_study(folder, config)) as study:
        screens = _screens(
            folder,
            replace(config, budget_s=screen_s),
            seen=study.programs(),
            jobs=jobs,
            ray=ray,
            progress=progress,
        )
        with screens as (make_runner, workers):
            search = Search(
                study,
                make_runner,
                trials=config.trials,
                budget_s=screen_s,
                jobs=workers,
                on_result=on_result,
            )
            study.note("stopped_because", search.run())
        found = report(folder, config, study)
    if config.measure is None:
        return found
    return measure(
        folder,
        budget_s=max(end - time.monotonic(), 1.0),
        trials=config.trials,
        on_result=on_result,
        progress=progress,
    )


def measure(
    folder: Path,
    *,
    use_gpu: bool | None = None,
    trials: int = 8,
    budget_s: float | None = None,
    on_result: OnResult = lambda candidate, outcome: None,
    progress: Progress = lambda text: None,
) -> Tuning:
    """Time the best simulated candidates against the baseline.

    The target's function runs on this machine's devices, or its job is launched, as the study
    was started.
    """
    config = read_study(folder)
    check_same_jaxlib(config)
    if use_gpu is None:
        use_gpu = shutil.which("nvidia-smi") is not None
    with open_backend(folder, config, use_gpu=use_gpu, progress=progress) as (backend, space):
        measure_candidates(
            folder,
            config,
            backend,
            trials=trials,
            budget_s=budget_s or config.budget_s,
            on_result=on_result,
            space=space,
        )
    return show(folder)


def show(folder: Path) -> Tuning:
    """A study as it stands; nothing is evaluated."""
    config = read_study(folder)
    with closing(open_study(folder, config)) as screen:
        found = report(folder, config, screen)
    with closing(open_study(folder, config, config.measured_study)) as measured:
        return with_measured(found, measured)


def check_same_jaxlib(config: StudyConfig) -> None:
    """Another XLA compiles other programs, whose steps must not share one ranking."""
    here = installed_catalogue().jaxlib_version
    if here != config.jaxlib:
        raise BadInput(
            f"the study was made with jaxlib {config.jaxlib}, but {here} is installed; start a new "
            f"one: slipstream tune {config.target} --on {config.machine} --study DIR"
        )


@contextmanager
def _screens(
    folder: Path,
    config: StudyConfig,
    *,
    seen: dict[str, Outcome],
    jobs: int | None,
    ray: str | None,
    progress: Progress,
) -> Iterator[tuple[MakeRunner, Callable[[], int]]]:
    """What evaluates candidates, here or on Ray, and how many of them at once."""
    costs: RecordedCosts | None = recorded_costs(config.costs, load) if config.costs else None
    spec = ScreenSpec(
        target_of(folder, config),
        machine_of(config.machine),
        costs,
        config.most_memory_bytes,
        config.timeout_s,
        times_compiles=config.objective == "compile",
    )
    if ray is None:
        yield lambda: spec.runner(seen), lambda: jobs or min(os.cpu_count() or 1, MOST_JOBS)
        return
    from slipstream.tune.ray.cluster import Cluster

    with Cluster(
        ray, spec, jobs=jobs, budget_s=config.budget_s, seen=seen, progress=progress
    ) as cluster:
        yield cluster.runner, cluster.size
