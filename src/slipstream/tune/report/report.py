"""A study's rows as the result that people read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from slipstream.results.tuning import (
    OK,
    RUNNING,
    SAME,
    WAITING,
    KnobEffect,
    NoiseFloor,
    TrialResult,
    Tuning,
)
from slipstream.tune.folder import StudyConfig, storage_of
from slipstream.tune.measure import finals
from slipstream.tune.outcome import Outcome
from slipstream.tune.report.effects import effects
from slipstream.tune.report.error_margin import trust_of
from slipstream.tune.report.reasons import reasons
from slipstream.tune.search.search import best_row
from slipstream.tune.search.study import Study, TrialRow
from slipstream.tune.space.knob import Knob
from slipstream.tune.space.space import Space

SCREEN, MEASURED, LAUNCHED = "screen", "measured", "launched"
"""the names of the study that simulates, of the one that runs, and of the one that starts jobs"""


def tuning_of(folder: Path, facts: StudyConfig, study: Study) -> Tuning:
    """Everything that is known of a study now."""
    rows = _listed(study.rows())
    best = best_row(rows, facts.objective)
    baseline = next((row for row in rows if row.outcome and not row.settings), None)
    trials = _tried(rows, baseline, facts.objective)
    by_number = {tried.number: tried for tried in trials}
    found_best = by_number[best.number] if best is not None else None
    why: tuple[str, ...] = ()
    if best is not None and baseline is not None and best.outcome and baseline.outcome:
        why = reasons(best.settings, baseline.outcome, best.outcome, facts.layers)
    return Tuning(
        facts.target,
        facts.machine,
        facts.program,
        facts.objective,
        facts.jaxlib,
        by_number.get(baseline.number) if baseline is not None else None,
        found_best,
        trials,
        _knobs(study, rows, study.space.knobs),
        dict(study.space.left_out),
        why,
        trust_of(trials, found_best, facts.costs is not None) if _is_step(facts) else None,
        None,
        study.notes().get("stopped_because", ""),
        sum(row.seconds for row in rows),
        str(folder),
        is_finished=not any(row.state in ("running", "waiting") for row in rows),
    )


def open_study(
    folder: Path, facts: StudyConfig, name: str = SCREEN, space: Space | None = None
) -> Study:
    """One of the folder's studies, with the knobs that it can tell apart."""
    spaces = {SCREEN: facts.space.screened, MEASURED: facts.space.in_process}
    known = space or spaces.get(name, facts.space)
    return Study(storage_of(folder, facts), name, known, facts.objective, facts.seed)


def ranked(rows: Sequence[TrialRow], objective: str) -> list[TrialRow]:
    """Distinct programs, the best first."""
    programs: set[str] = set()
    found = []
    for row in _listed(rows):
        outcome = row.outcome
        if outcome is None or outcome.score(objective) is None or outcome.program in programs:
            continue
        programs.add(outcome.program)
        found.append((outcome.score(objective) or 0.0, row.number, row))
    return [row for _, _, row in sorted(found, key=lambda one: one[:2])]


def with_measured(tuning: Tuning, study: Study) -> Tuning:
    """The same with what was measured: that decides who is best."""
    rows = _listed(study.rows())
    notes = study.notes()
    if not any(row.outcome for row in rows):
        return tuning
    first = max((tried.number for tried in tuning.trials), default=-1) + 1
    measured = [
        replace(_one(row, row.outcome, None, "step"), number=first + row.number)
        for row in rows
        if row.outcome is not None and row.settings
    ]
    floor = NoiseFloor(**json.loads(notes["noise_floor"])) if "noise_floor" in notes else None
    baseline = tuning.baseline
    if baseline is not None and "baseline_us" in notes:
        baseline = replace(
            baseline, step_us=float(notes["baseline_us"]), basis="measured", exposed_us=None
        )
    results = {first + number: result for number, result in finals.read(notes).items()}
    measured = [_after(results.get(tried.number), tried) for tried in measured]
    # Who was in the finals is judged by them, and nobody else can be best.
    able = [tried for tried in measured if not results or tried.number in results]
    found, why = _best(able, results)
    best = found or baseline
    return replace(
        tuning,
        knobs=_measured_where_known(tuning.knobs, _knobs(study, rows, study.space.knobs)),
        left_out=dict(study.space.left_out),
        baseline=baseline,
        best=best,
        trials=(*tuning.trials, *measured),
        reasons=(*why, *(tuning.reasons if _is_same(best, tuning.best) else ())),
        trust=None,
        noise_floor=floor,
        stopped_because=notes.get("stopped_because", tuning.stopped_because),
    )


def _best(
    able: Sequence[TrialResult], results: Mapping[int, finals.Result]
) -> tuple[TrialResult | None, tuple[str, ...]]:
    """Of those that are as fast as the fastest, the one with the fewest settings; and why it."""
    faster = [t for t in able if t.change_interval is not None and t.change_interval[1] < 0]
    fastest = min(faster, key=lambda tried: tried.change or 0.0, default=None)
    as_fast = [t for t in faster if t.number in results and results[t.number].is_as_fast]
    best = min(as_fast, key=lambda t: (len(t.settings), t.change or 0.0), default=fastest)
    if best is None or fastest is None or best is fastest:
        return best, ()
    beside = results[best.number].beside
    assert beside is not None
    return best, (
        f"of the finalists as fast as the fastest it has the fewest settings, "
        f"{len(best.settings)} instead of {len(fastest.settings)}: beside that one its step "
        f"changes by {beside.change:+.1%} (95%: {beside.low:+.1%} … {beside.high:+.1%})",
    )


def _after(result: finals.Result | None, tried: TrialResult) -> TrialResult:
    """A candidate by its fresh times, where it has some."""
    if result is None:
        return tried
    before = result.before_us
    return replace(
        tried,
        step_us=before * (1 + result.change),
        interval_us=(before * (1 + result.low), before * (1 + result.high)),
        change=result.change,
        change_interval=(result.low, result.high),
        note=f"finals; before: {tried.note}",
    )


def _is_same(one: TrialResult | None, other: TrialResult | None) -> bool:
    return one is not None and other is not None and dict(one.settings) == dict(other.settings)


def _is_step(facts: StudyConfig) -> bool:
    return facts.objective == "step"


def _listed(rows: Sequence[TrialRow]) -> list[TrialRow]:
    """Each settings once: repeats and interrupted tries are the study's own affair."""
    done = {_key(row): row for row in reversed(rows) if _counts(row)}
    found = []
    for row in rows:
        is_done = _counts(row) and done[_key(row)] is row
        is_open = row.state in ("running", "waiting") and _key(row) not in done
        if is_done or is_open:
            found.append(row)
    return found


def _counts(row: TrialRow) -> bool:
    return row.state == "done" and row.repeat_of is None and row.outcome is not None


def _key(row: TrialRow) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(row.settings.items()))


def _tried(
    rows: Sequence[TrialRow], baseline: TrialRow | None, objective: str
) -> tuple[TrialResult, ...]:
    reference = baseline.outcome.score(objective) if baseline and baseline.outcome else None
    programs: dict[str, int] = {}
    works: dict[str, int] = {}
    found = []
    for row in rows:
        outcome = row.outcome
        if outcome is None:
            status = RUNNING if row.state == "running" else WAITING
            found.append(TrialResult(row.number, row.settings, status, row.origin))
            continue
        tried = _one(row, outcome, reference, objective)
        if outcome.program and outcome.status == OK:
            first = programs.setdefault(outcome.program, row.number)
            alike = works.setdefault(outcome.work, row.number)
            if first != row.number:
                tried = replace(tried, status=SAME, same_program_as=first)
            elif alike != row.number:
                tried = replace(tried, same_work_as=alike)
        found.append(tried)
    return tuple(found)


def _one(row: TrialRow, outcome: Outcome, reference: float | None, objective: str) -> TrialResult:
    score = outcome.score(objective)
    change = score / reference - 1 if score is not None and reference else None
    if outcome.change is not None and objective == "step":
        change = outcome.change
    return TrialResult(
        row.number,
        row.settings,
        outcome.status,
        row.origin,
        outcome.step_us,
        outcome.interval_us,
        outcome.memory_bytes,
        outcome.compile_s,
        outcome.exposed_us,
        outcome.basis,
        change=change,
        change_interval=outcome.change_interval,
        numbers=outcome.numbers,
        note=outcome.note,
        wrong=outcome.wrong,
    )


def _measured_where_known(
    simulated: Sequence[KnobEffect], measured: Sequence[KnobEffect]
) -> tuple[KnobEffect, ...]:
    """What a knob was measured to do counts more than what was simulated."""
    found = {knob.name: knob for knob in simulated}
    for knob in measured:
        if knob.effect is not None or knob.name not in found:
            found[knob.name] = replace(knob, basis="measured")
    return tuple(sorted(found.values(), key=lambda k: (k.basis != "measured", *_certainty(k))))


def _knobs(study: Study, rows: Sequence[TrialRow], knobs: Sequence[Knob]) -> tuple[KnobEffect, ...]:
    samples = [
        # What was measured counts against the baseline of its own window.
        (row.settings, score if row.outcome.change is None else 1 + row.outcome.change)
        for row in rows
        if row.outcome is not None and (score := row.outcome.score(study.objective))
    ]
    if any(row.outcome.change is not None for row in rows if row.outcome is not None):
        # The baseline runs in every window, and may never have been a candidate.
        samples.append(({}, 1.0))
    seen = effects(study.space.knobs, samples)
    shares = study.importances()
    found = []
    for knob in knobs:
        effect = seen.get(knob.name)
        moved = sum(knob.name in settings for settings, _ in samples)
        found.append(
            KnobEffect(
                knob.name,
                knob.values,
                knob.default,
                knob.why,
                knob.seen_by,
                shares.get(knob.name) if moved else None,
                effect.value if effect else None,
                effect.change if effect else None,
                (effect.low, effect.high) if effect else None,
                moved,
            )
        )
    return tuple(sorted(found, key=_certainty))


def _certainty(knob: KnobEffect) -> tuple[bool, float]:
    """Those that surely help first, then by what they seem to do."""
    if knob.effect is None or knob.interval is None:
        return True, 1.0
    return knob.interval[1] >= 0, knob.effect
