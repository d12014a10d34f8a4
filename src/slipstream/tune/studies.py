"""A study from its first line to its report: begun in a folder, or gone on with."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from slipstream.compiler.compile import compiler, machine_of
from slipstream.errors import BadInput
from slipstream.flags.catalogue.catalogue import installed_catalogue
from slipstream.results.tuning import Tuning
from slipstream.simulate.recorded import RecordedCosts, recorded_costs
from slipstream.sources.load import load
from slipstream.tune.folder import (
    DEFAULT_FOLDER,
    StudyConfig,
    has_study,
    read_study,
    target_of,
    write_study,
)
from slipstream.tune.measure.backends import SCREEN_SHARE, JobSpec, check_runnable, open_backend
from slipstream.tune.measure.measured_search import measure_candidates
from slipstream.tune.outcome import Outcome, check_objective
from slipstream.tune.ray.connection import connected
from slipstream.tune.report.reasons import layer_facts
from slipstream.tune.report.report import LAUNCHED, MEASURED, open_study, tuning_of, with_measured
from slipstream.tune.run_folder import as_target
from slipstream.tune.search.screen import TIMEOUT_S, ScreenSpec
from slipstream.tune.search.search import MakeRunner, OnResult, Search
from slipstream.tune.search.seeds import seeds
from slipstream.tune.space.program_traits import traits_of
from slipstream.tune.space.space import SpaceOptions, space_of

MOST_JOBS = 4
"""compilers at once by default: each takes a core and a gigabyte or two"""
Progress = Callable[[str], None]


@dataclass(frozen=True)
class TuneOptions:
    """What a search was asked for."""

    on: str = "8xH200"
    objective: str = "step"
    trials: int = 60
    budget_s: float = 600.0
    folder: Path = Path(DEFAULT_FOLDER)
    storage: str | None = None
    jobs: int | None = None
    costs: str | None = None
    asked: SpaceOptions = field(default_factory=SpaceOptions)
    most_memory_bytes: int | None = None
    tolerance: float = 0.01
    timeout_s: float = TIMEOUT_S
    seed: int = 0
    ray: str | None = None
    """the address of a Ray cluster"""
    measure: JobSpec | None = None
    """how candidates are to be run, once they are ranked"""


def default_jobs() -> int:
    return min(os.cpu_count() or 1, MOST_JOBS)


def begin(target: str, order: TuneOptions, progress: Progress = lambda text: None) -> StudyConfig:
    """Lower and compile the target, find its knobs, and write the study's folder."""
    check_objective(order.objective)
    if order.measure is not None:
        check_runnable(target, order.objective, order.measure)
    machine, catalogue = machine_of(order.on), installed_catalogue()
    path, own_costs = as_target(target)
    costs_path = order.costs or own_costs
    with compiler(path, on=machine, progress=progress) as session:
        kept = session.portable_target()
    with compiler(kept, on=machine, progress=progress) as session:
        program = session.compile().program
    progress("looking for knobs")
    traits = traits_of(program, machine)
    space = space_of(
        traits, catalogue, is_measured=True, is_launched=True,
        has_costs=costs_path is not None, asked=order.asked,
    )  # fmt: skip
    if not space.knobs:
        raise BadInput(
            f"no knob is left for {target} on {machine.spec}: every one is forbidden or can't "
            "matter; allow more, or add one with --add NAME=VALUE,VALUE"
        )
    facts = StudyConfig(
        target, kept.kind, order.on, program.name, order.objective, catalogue.jaxlib_version,
        space, kept.devices, kept.options, order.storage, costs_path, order.most_memory_bytes,
        order.tolerance, order.trials, order.budget_s, order.timeout_s, order.seed,
        order.measure.to_json() if order.measure is not None else None,
        layers=layer_facts(traits, space),
    )  # fmt: skip
    write_study(order.folder, facts, kept.content)
    study = open_study(order.folder, facts)
    gpu = machine.gpu.name
    known = space.screened
    study.enqueue(seeds(known, traits, catalogue, gpu, max(order.trials // 2, 1)))
    study.close()
    return facts


def tune(
    target: str,
    order: TuneOptions,
    *,
    on_result: OnResult = lambda candidate, outcome: None,
    progress: Progress = lambda text: None,
) -> Tuning:
    """Begin a study, and search."""
    if has_study(order.folder):
        raise BadInput(
            f"{order.folder} holds a study already; go on with it: slipstream tune resume "
            f"{order.folder}, or name another folder: --study DIR"
        )
    # A cluster that is not there is better known now than after the first compiles.
    with connected(order.ray):
        begin(target, order, progress)
        return resume(
            order.folder, jobs=order.jobs, ray=order.ray, on_result=on_result, progress=progress
        )  # fmt: skip


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
    """Go on with a study: what is done stays, what was interrupted is done again.

    With `ray`, the address of a Ray cluster, candidates are tried out there.
    """
    facts = read_study(folder)
    facts = replace(facts, trials=trials or facts.trials, budget_s=budget_s or facts.budget_s)
    end = time.monotonic() + facts.budget_s
    check_same_jaxlib(facts)
    study = open_study(folder, facts)
    screen_s = facts.budget_s * (SCREEN_SHARE if facts.measure else 1)
    # Where compiling is what is timed, compilers must not get into each other's way.
    jobs = 1 if facts.objective == "compile" else jobs
    try:
        with _runners(
            folder, replace(facts, budget_s=screen_s), study.programs(), jobs, ray, progress
        ) as (make_runner, workers):
            search = Search(
                study,
                make_runner,
                trials=facts.trials,
                budget_s=screen_s,
                jobs=workers,
                on_result=on_result,
            )
            study.note("stopped_because", search.run())
        found = tuning_of(folder, facts, study)
    finally:
        study.close()
    if facts.measure is None:
        return found
    left_s = max(end - time.monotonic(), 1.0)
    return measure(
        folder, budget_s=left_s, trials=facts.trials, on_result=on_result, progress=progress
    )


def show(folder: Path) -> Tuning:
    """A study as it stands; nothing is tried."""
    facts = read_study(folder)
    with closing(open_study(folder, facts)) as study:
        found = tuning_of(folder, facts, study)
    for name in (MEASURED, LAUNCHED):
        with closing(open_study(folder, facts, name)) as study:
            found = with_measured(found, study)
    return found


def measure(
    folder: Path,
    *,
    use_gpu: bool | None = None,
    trials: int = 8,
    budget_s: float | None = None,
    on_result: OnResult = lambda candidate, outcome: None,
    progress: Progress = lambda text: None,
) -> Tuning:
    """Run the best of a screen against the baseline, as the study was begun: its function on the
    devices of this machine, or its job."""
    facts = read_study(folder)
    check_same_jaxlib(facts)
    if use_gpu is None:
        use_gpu = shutil.which("nvidia-smi") is not None
    with open_backend(folder, facts, use_gpu=use_gpu, progress=progress) as how:
        why = measure_candidates(
            folder, facts, how.measure, trials=trials, budget_s=budget_s or facts.budget_s,
            on_result=on_result, space=how.space, name=how.study,
        )  # fmt: skip
        with closing(open_study(folder, facts, how.study, how.space)) as study:
            study.note("stopped_because", why)
    return show(folder)


def check_same_jaxlib(facts: StudyConfig) -> None:
    """Another XLA makes other programs: their steps must not stand in one ranking."""
    here = installed_catalogue().jaxlib_version
    if here != facts.jaxlib:
        raise BadInput(
            f"the study is of jaxlib {facts.jaxlib}, and {here} is installed; begin another with: "
            f"slipstream tune {facts.target} --on {facts.machine} --study DIR"
        )


@contextmanager
def _runners(
    folder: Path,
    facts: StudyConfig,
    seen: dict[str, Outcome],
    jobs: int | None,
    ray: str | None,
    progress: Progress,
) -> Iterator[tuple[MakeRunner, Callable[[], int]]]:
    """What candidates are tried out with, and how many at once."""
    costs: RecordedCosts | None = recorded_costs(facts.costs, load) if facts.costs else None
    recipe = ScreenSpec(
        target_of(folder, facts),
        machine_of(facts.machine),
        costs,
        facts.most_memory_bytes,
        facts.timeout_s,
        # Where compiling is what is timed, nobody may have done half of it before.
        shares_kernels=facts.objective != "compile",
    )
    if ray is None:
        yield lambda: recipe.screen(seen), lambda: jobs or default_jobs()
        return
    from slipstream.tune.ray.cluster import Cluster

    with Cluster(
        ray, recipe, jobs=jobs, budget_s=facts.budget_s, seen=seen, progress=progress
    ) as cluster:
        yield cluster.runner, cluster.size
