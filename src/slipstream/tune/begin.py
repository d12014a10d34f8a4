"""A study from its first line to its report: begun in a folder, or gone on with."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from slipstream.analyses.tuning import Tuning
from slipstream.compiler.compile import compiler, machine_of
from slipstream.errors import BadInput
from slipstream.flags.catalogue import installed_catalogue
from slipstream.simulate.recorded import RecordedCosts, recorded_costs
from slipstream.sources.load import load
from slipstream.tune.folder import (
    DEFAULT_FOLDER,
    Facts,
    has_study,
    read_study,
    target_of,
    write_study,
)
from slipstream.tune.measure import InProcess
from slipstream.tune.outcome import Outcome, check_objective
from slipstream.tune.reasons import layer_facts
from slipstream.tune.report import MEASURED, open_study, tuning_of, with_measured
from slipstream.tune.runfolder import as_target
from slipstream.tune.screen import TIMEOUT_S, Screen
from slipstream.tune.search import OnTold, Search
from slipstream.tune.space import Asked, space_of
from slipstream.tune.suggestions import suggestions
from slipstream.tune.traits import traits_of
from slipstream.tune.trial_runs import measure_best

MOST_JOBS = 4
"""compilers at once by default: each takes a core and a gigabyte or two"""
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Order:
    """What a search was asked for."""

    on: str = "8xH200"
    objective: str = "step"
    trials: int = 60
    budget_s: float = 600.0
    folder: Path = Path(DEFAULT_FOLDER)
    storage: str | None = None
    jobs: int | None = None
    costs: str | None = None
    asked: Asked = field(default_factory=Asked)
    most_memory_bytes: int | None = None
    tolerance: float = 0.01
    timeout_s: float = TIMEOUT_S
    seed: int = 0

    @property
    def workers(self) -> int:
        return self.jobs or default_jobs()


def default_jobs() -> int:
    return min(os.cpu_count() or 1, MOST_JOBS)


def begin(target: str, order: Order, progress: Progress = lambda text: None) -> Facts:
    """Lower and compile the target, find its knobs, and write the study's folder."""
    check_objective(order.objective)
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
        traits, catalogue, has_costs=costs_path is not None, asked=order.asked
    )  # fmt: skip
    if not space.knobs:
        raise BadInput(
            f"no knob is left for {target} on {machine.spec}: every one is forbidden or can't "
            "matter; allow more, or add one with --add NAME=VALUE,VALUE"
        )
    facts = Facts(
        target, kept.kind, order.on, program.name, order.objective, catalogue.jaxlib_version,
        space, kept.devices, kept.options, order.storage, costs_path, order.most_memory_bytes,
        order.tolerance, order.trials, order.budget_s, order.timeout_s, order.seed,
        layers=layer_facts(traits, space),
    )  # fmt: skip
    write_study(order.folder, facts, kept.content)
    study = open_study(order.folder, facts)
    gpu = machine.gpu.name
    study.enqueue(suggestions(space, traits, catalogue, gpu, max(order.trials // 2, 1)))
    study.close()
    return facts


def tune(
    target: str,
    order: Order,
    *,
    on_told: OnTold = lambda candidate, outcome: None,
    progress: Progress = lambda text: None,
) -> Tuning:
    """Begin a study, and search."""
    if has_study(order.folder):
        raise BadInput(
            f"{order.folder} holds a study already; go on with it: slipstream tune resume "
            f"{order.folder}, or name another folder: --study DIR"
        )
    begin(target, order, progress)
    return resume(order.folder, jobs=order.workers, on_told=on_told)


def resume(
    folder: Path,
    *,
    jobs: int | None = None,
    trials: int | None = None,
    budget_s: float | None = None,
    on_told: OnTold = lambda candidate, outcome: None,
) -> Tuning:
    """Go on with a study: what is done stays, what was interrupted is done again."""
    facts = read_study(folder)
    facts = replace(facts, trials=trials or facts.trials, budget_s=budget_s or facts.budget_s)
    check_same_jaxlib(facts)
    study = open_study(folder, facts)
    try:
        search = Search(
            study,
            _rig(folder, facts),
            trials=facts.trials,
            budget_s=facts.budget_s,
            jobs=1 if facts.objective == "compile" else jobs or default_jobs(),
            on_told=on_told,
        )
        study.note("stopped_because", search.run())
        return tuning_of(folder, facts, study)
    finally:
        study.close()


def show(folder: Path) -> Tuning:
    """A study as it stands; nothing is tried."""
    facts = read_study(folder)
    study, measured = open_study(folder, facts), open_study(folder, facts, MEASURED)
    try:
        return with_measured(tuning_of(folder, facts, study), measured)
    finally:
        study.close()
        measured.close()


def measure(
    folder: Path,
    *,
    use_gpu: bool,
    trials: int = 8,
    budget_s: float | None = None,
    on_told: OnTold = lambda candidate, outcome: None,
) -> Tuning:
    """Run the best of a screen on the devices of this machine, against the baseline."""
    facts = read_study(folder)
    module, colon, function = facts.target.rpartition(":")
    if not colon or not function.isidentifier():
        raise BadInput(
            f"{facts.target} can't be run: it has no arguments; expected FILE.py:FUNCTION, or use "
            "slipstream run --flags for the winner"
        )
    with InProcess(
        module, function, use_gpu=use_gpu, tolerance=facts.tolerance, timeout_s=facts.timeout_s
    ) as bench:
        why = measure_best(
            folder, facts, bench, trials=trials, budget_s=budget_s or facts.budget_s,
            on_told=on_told,
        )  # fmt: skip
    study = open_study(folder, facts, MEASURED)
    study.note("stopped_because", why)
    study.close()
    return show(folder)


def check_same_jaxlib(facts: Facts) -> None:
    """Another XLA makes other programs: their steps must not stand in one ranking."""
    here = installed_catalogue().jaxlib_version
    if here != facts.jaxlib:
        raise BadInput(
            f"the study is of jaxlib {facts.jaxlib}, and {here} is installed; begin another with: "
            f"slipstream tune {facts.target} --on {facts.machine} --study DIR"
        )


def _rig(folder: Path, facts: Facts) -> Callable[[], Screen]:
    machine, target = machine_of(facts.machine), target_of(folder, facts)
    costs: RecordedCosts | None = recorded_costs(facts.costs, load) if facts.costs else None
    seen: dict[str, Outcome] = {}

    def make() -> Screen:
        return Screen(
            target,
            machine,
            costs=costs,
            most_memory_bytes=facts.most_memory_bytes,
            timeout_s=facts.timeout_s,
            # Where compiling is what is timed, nobody may have done half of it before.
            shares_kernels=facts.objective != "compile",
            seen=seen,
        )

    return make
