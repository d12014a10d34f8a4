"""Candidates simulated again with costs from a recording of one that was measured.

recording ─► costs of its kernels ─┬─► kernels that other candidates share: as recorded
                                   └─► the rest: modelled, scaled by the models' errors here

    plan 8xH200 recorded 0.11.2    a study: the outcomes with these costs
"""

from __future__ import annotations

import json
import os
import queue
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import asdict, replace
from pathlib import Path

from slipstream.compiler.combinations import Combinations, combinations
from slipstream.errors import SlipstreamError
from slipstream.machines.machine import Machine
from slipstream.plan.measure.calibration import compared
from slipstream.plan.measure.measured import Key, key_of, key_of_candidate, settings_of_candidate
from slipstream.plan.plan_folder import PlanConfig, storage_of
from slipstream.plan.report.limits import limits_of
from slipstream.plan.search.evaluation import VALUE
from slipstream.plan.space.search_space import SearchSpace
from slipstream.results.planning import BOUND, Candidate, Limit
from slipstream.results.tuning import OK, REFUSED
from slipstream.simulate.prediction import predict
from slipstream.simulate.recorded import RecordedCosts
from slipstream.tune.outcome import Outcome
from slipstream.tune.search.seeds import SEARCH, Suggestion
from slipstream.tune.search.study import Study
from slipstream.tune.studies import MOST_JOBS

RECORDED = "recorded"
"""note of the study: the settings of the candidate that was recorded, as JSON"""
Place = tuple[Path, PlanConfig, SearchSpace, str, str]
"""the plan's folder and settings, its space, the machine and the jaxlib"""


def open_recorded(
    folder: Path, config: PlanConfig, space: SearchSpace, spec: str, jaxlib: str
) -> Study:
    name = f"plan {spec} recorded {jaxlib}"
    return Study(storage_of(folder, config), name, space, VALUE, config.seed)


def simulate_again(
    place: Place,
    machine: Machine,
    costs: RecordedCosts,
    recorded: Candidate,
    candidates: Sequence[Candidate],
) -> None:
    """Compile and simulate candidates with recorded costs, several at once; keep the outcomes."""
    with closing(open_recorded(*place)) as study, ExitStack() as stack:
        study.enqueue([Suggestion(settings_of_candidate(one), SEARCH) for one in candidates])
        study.requeue_dead()
        waiting = sum(row.state == "waiting" for row in study.rows())
        asked = [one for _ in range(waiting) if (one := study.ask()) is not None]
        jobs = max(min(os.cpu_count() or 1, MOST_JOBS, len(asked)), 1)
        sessions: queue.SimpleQueue[Combinations] = queue.SimpleQueue()
        for _ in range(jobs):
            sessions.put(stack.enter_context(combinations(place[1].target, machine)))

        def simulated(candidate: Candidate) -> Outcome:
            session = sessions.get()
            try:
                return _simulated(session, candidate, costs)
            finally:
                sessions.put(session)

        by_key = {key_of_candidate(one): one for one in candidates}
        with ThreadPoolExecutor(jobs) as pool:
            wanted = [by_key[key_of(one.settings)] for one in asked]
            for trial, outcome in zip(asked, pool.map(simulated, wanted), strict=True):
                study.tell(trial, outcome)
        if RECORDED not in study.notes():
            study.note(RECORDED, json.dumps(settings_of_candidate(recorded)))


def _simulated(session: Combinations, candidate: Candidate, costs: RecordedCosts) -> Outcome:
    try:
        # Without the costs: XLA would schedule by them, and not as what was measured.
        compiled = session.compile(dict(candidate.choices))
        found = predict(
            compiled.program,
            session.machine,
            costs.costs,
            source=costs.source,
            compilation=compiled,
        )
    except SlipstreamError as error:
        return Outcome(REFUSED, note=str(error))
    limits, parts = limits_of(found, compiled.program, session.machine)
    return Outcome(
        OK,
        step_us=found.step_us,
        low_us=found.low_us,
        high_us=found.high_us,
        value=found.step_us / (candidate.work or 1.0),
        memory_bytes=compiled.memory.peak_bytes,
        parts_us=parts,
        details={"limits": [asdict(one) for one in limits]},
    )


def recorded_outcomes(
    folder: Path, config: PlanConfig, space: SearchSpace, spec: str, jaxlib: str
) -> tuple[dict[Key, Outcome], Key]:
    """Outcomes by settings, and the settings of the candidate that was recorded."""
    with closing(open_recorded(folder, config, space, spec, jaxlib)) as study:
        rows, note = study.rows(), study.notes().get(RECORDED, "{}")
    found = {
        key_of(row.settings): row.outcome
        for row in rows
        if row.state == "done" and row.outcome is not None and row.outcome.is_ok
    }
    return found, key_of(json.loads(note))


def with_recorded(
    candidates: Sequence[Candidate], outcomes: Mapping[Key, Outcome]
) -> tuple[Candidate, ...]:
    """Candidates as simulated with recorded costs, where they were."""
    found = []
    for one in candidates:
        outcome = outcomes.get(key_of_candidate(one))
        is_known = outcome is not None and one.basis != BOUND
        found.append(_replaced(one, outcome) if outcome is not None and is_known else one)
    return tuple(found)


def _replaced(candidate: Candidate, outcome: Outcome) -> Candidate:
    step, work = outcome.step_us or 0.0, candidate.work
    limits = (outcome.details or {}).get("limits", ())
    return replace(
        candidate,
        step_us=step,
        low_us=outcome.low_us,
        high_us=outcome.high_us,
        work_per_s=work / step * 1e6 if work and step else None,
        parts_us=outcome.parts_us or {},
        limits=tuple(Limit(**one) for one in limits),
    )


def is_better(before: Sequence[Candidate], after: Sequence[Candidate], recorded: Key) -> bool:
    """Whether recorded costs predict the other measured candidates better."""

    def error(candidates: Sequence[Candidate]) -> float:
        others = [one for one in compared(candidates) if key_of_candidate(one) != recorded]
        return sum(abs((one.predicted_us or 0.0) / (one.step_us or 1.0) - 1) for one in others)

    return error(after) < error(before)
