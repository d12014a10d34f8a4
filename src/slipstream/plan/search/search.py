"""The search on one machine: bounds of all combinations, then the promising ones evaluated.

up to a thousand combinations     all of them, the most promising first
more                              a sample, then what Optuna proposes
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, nullcontext
from dataclasses import replace
from functools import reduce
from pathlib import Path

from slipstream.compiler.source_tracking import TargetInputs
from slipstream.machines.machine import Machine
from slipstream.plan.plan_folder import PlanConfig, storage_of, write_plan
from slipstream.plan.search.evaluation import VALUE, Evaluation, Known
from slipstream.plan.search.facts import EvaluationSpec
from slipstream.plan.search.ray import NodeSpec, RayEvaluations
from slipstream.plan.space.search_space import SearchSpace, combination_of, settings_of
from slipstream.plan.space.space import Combination, space_of
from slipstream.simulate.recorded import recorded_costs
from slipstream.sources.load import load
from slipstream.tune.outcome import Outcome
from slipstream.tune.ray.cluster import Cluster
from slipstream.tune.search.search import MakeRunner, Search
from slipstream.tune.search.seeds import DEFAULT, SEARCH, Suggestion
from slipstream.tune.search.study import Candidate, Study
from slipstream.tune.studies import MOST_JOBS

MOST_LISTED = 1000
"""spaces up to this size are tried whole; larger ones are sampled, then searched by Optuna"""
SAMPLED = 64
"""combinations of a large space that are tried before Optuna proposes any"""
BOUNDS_SHARE = 0.3
"""most of the budget that bounds may take; combinations without one are tried last"""
PROGRESS_S = 2.0
"""between two reports of progress"""
Progress = Callable[[str], None]
OnResult = Callable[[Machine, Candidate, Outcome], None]


def open_study(folder: Path, config: PlanConfig, space: SearchSpace, spec: str) -> Study:
    """The study of one machine."""
    return Study(storage_of(folder, config), f"plan {spec}", space, VALUE, config.seed)


class MachineSearch:
    """Evaluates the combinations of a plan on one machine."""

    def __init__(
        self,
        folder: Path,
        config: PlanConfig,
        machine: Machine,
        on_result: OnResult,
        progress: Progress,
    ) -> None:
        self._config = config
        self._machine = machine
        self._on_result = on_result
        self._progress = progress
        self._space = SearchSpace(config.choices, space_of(config.choices, machine, config.where))
        self._folder = folder
        self._known = Known()

    def run(self, budget_s: float, jobs: int | None, ray: str | None = None) -> None:
        """Evaluate until the budget is spent or nothing is left; the study keeps the reason."""
        end = time.monotonic() + budget_s
        spec = self._spec()
        here = min(os.cpu_count() or 1, MOST_JOBS)
        local = here if ray is not None else jobs or here
        opened = open_study(self._folder, self._config, self._space, self._machine.spec)
        with closing(opened) as study, ExitStack() as stack:
            settled = self._settled(study)
            # Evaluations that computed bounds go on to compile: their processes are warm.
            ready = [stack.enter_context(Evaluation(spec, self._known)) for _ in range(local)]
            bounds_end = time.monotonic() + BOUNDS_SHARE * budget_s
            suggestions = self._suggestions(ready, settled, bounds_end)
            self._keep_inputs(ready)
            left_s = max(end - time.monotonic(), 0.0)
            make_runner: MakeRunner = lambda: nullcontext(ready.pop())  # noqa: E731
            workers: int | Callable[[], int] = local
            if ray is not None:
                cluster = self._cluster(ray, spec, jobs, left_s)
                stack.enter_context(cluster)
                make_runner = RayEvaluations(cluster, ready, self._known).runner
                workers = cluster.size
            search = Search(
                study,
                make_runner,
                trials=self._config.trials,
                budget_s=left_s,
                jobs=workers,
                on_result=lambda one, outcome: self._on_result(self._machine, one, outcome),
                simplifies=False,
                suggestions=suggestions,
            )
            study.note("stopped_because", search.run())

    def _cluster(
        self, address: str, spec: EvaluationSpec, jobs: int | None, budget_s: float
    ) -> Cluster:
        return Cluster(
            address,
            NodeSpec(spec),
            jobs=jobs,
            budget_s=budget_s,
            seen=self._known.programs,
            progress=self._progress,
        )

    def _spec(self) -> EvaluationSpec:
        config = self._config
        return EvaluationSpec(
            config.as_target,
            self._machine,
            config.objective,
            recorded_costs(config.costs, load) if config.costs else None,
            config.timeout_s,
            config.command,
        )

    def _settled(self, study: Study) -> set[Combination]:
        """What an earlier process evaluated; its outcomes are known here from now on."""
        found = set()
        for row in study.rows():
            if row.outcome is not None:
                self._known.add(row.settings, row.outcome)
                found.add(combination_of(row.settings))
        return found

    def _keep_inputs(self, evaluations: Sequence[Evaluation]) -> None:
        """What the target reads, for whoever resumes the plan."""
        if not self._config.inputs and evaluations:
            joined = reduce(TargetInputs.joined, (one.inputs for one in evaluations))
            self._config = replace(self._config, inputs=joined.state())
            write_plan(self._folder, self._config)

    def _suggestions(
        self, evaluations: Sequence[Evaluation], settled: set[Combination], end: float
    ) -> list[Suggestion]:
        """The combinations to try: the default, then the most promising; of many, a sample."""
        space = self._space.space
        found = space.sample(MOST_LISTED if space.count <= MOST_LISTED else SAMPLED)
        default = space.default
        if default is not None and default not in found:
            found.append(default)
        found = [one for one in found if one not in settled]
        promises = self._promises(found, evaluations, end)
        order = {one: promises.get(one, (math.inf, 0.0)) for one in found}
        return [
            Suggestion(settings_of(one), DEFAULT if one == default else SEARCH)
            for one in sorted(found, key=lambda one: (one != default, order[one]))
        ]

    def _promises(
        self, combinations: Sequence[Combination], evaluations: Sequence[Evaluation], end: float
    ) -> dict[Combination, tuple[float, float]]:
        """What to sort combinations by; all evaluations compute bounds until the time is up."""
        found: dict[Combination, tuple[float, float]] = {}
        left, lock = list(reversed(combinations)), threading.Lock()
        told = time.monotonic()

        def bound_all(evaluation: Evaluation) -> None:
            nonlocal told
            while True:
                with lock:
                    if not left or time.monotonic() >= end:
                        return
                    one = left.pop()
                    if time.monotonic() > told + PROGRESS_S:
                        told, done = time.monotonic(), len(combinations) - len(left)
                        text = f"bounds on {self._machine.spec}: {done} of {len(combinations)}"
                        self._progress(text)
                found[one] = evaluation.promise(settings_of(one))

        with ThreadPoolExecutor(len(evaluations)) as pool:
            try:
                list(pool.map(bound_all, evaluations))
            finally:
                left.clear()  # after Ctrl-C, the threads stop with what they are at
        return found
