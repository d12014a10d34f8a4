"""What a study found: its trials as the result that people read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from slipstream.machines.topology import machine
from slipstream.results.tuning import (
    OK,
    RUNNING,
    SAME,
    WAITING,
    ErrorMargin,
    KnobEffect,
    NoiseFloor,
    TrialResult,
    Tuning,
)
from slipstream.tune.measure import finals
from slipstream.tune.outcome import Outcome
from slipstream.tune.report.effects import effects
from slipstream.tune.report.reasons import program_changes, reasons
from slipstream.tune.search.search import best_row
from slipstream.tune.search.study import Study, TrialRow
from slipstream.tune.space.knob import Knob
from slipstream.tune.study_folder import StudyConfig

MODELLED_ERROR = 0.043
"""mean error of predicted steps without a profile: docs/accuracy.md"""
MEASURED_ERROR = 0.015
"""the same with the costs of another setting of the same program"""


def report(folder: Path, config: StudyConfig, study: Study) -> Tuning:
    """The result of the simulated search so far."""
    rows = _listed(study.rows())
    best = best_row(rows, config.objective)
    baseline = next((row for row in rows if row.outcome and not row.settings), None)
    trials = _tried(rows, baseline, config.objective)
    by_number = {tried.number: tried for tried in trials}
    found_best = by_number[best.number] if best is not None else None
    why: tuple[str, ...] = ()
    if best is not None and baseline is not None and best.outcome and baseline.outcome:
        why = reasons(best.settings, baseline.outcome, best.outcome, config.layers)
    return Tuning(
        target=config.target,
        machine=config.machine,
        program=config.program,
        objective=config.objective,
        jaxlib=config.jaxlib,
        baseline=by_number.get(baseline.number) if baseline is not None else None,
        best=found_best,
        trials=trials,
        knobs=_knobs(study, rows, study.space.knobs),
        left_out=dict(study.space.left_out),
        reasons=why,
        trust=error_margin(trials, found_best, config.costs is not None)
        if _is_step(config) and machine(config.machine).kind == "gpu"
        else None,
        noise_floor=None,
        stopped_because=study.notes().get("stopped_because", ""),
        seconds=sum(row.seconds for row in rows),
        folder=str(folder),
        is_finished=not any(row.state in ("running", "waiting") for row in rows),
    )


def ranked(rows: Sequence[TrialRow], objective: str) -> list[TrialRow]:
    """Trials with distinct programs, the best first."""
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
    """The result with measured candidates added; measurements decide which is best."""
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
    floor = NoiseFloor.from_note(notes["noise_floor"]) if "noise_floor" in notes else None
    baseline = tuning.baseline
    if baseline is not None and "baseline_us" in notes:
        baseline = replace(
            baseline,
            step_us=float(notes["baseline_us"]),
            basis="measured",
            exposed_us=None,
            low_us=None,
            high_us=None,
            least_us=None,
        )
    results = {first + number: result for number, result in finals.from_notes(notes).items()}
    measured = [_after(results.get(tried.number), tried) for tried in measured]
    # After finals, only finalists can be best.
    able = [tried for tried in measured if not results or tried.number in results]
    found, why = _best(able, results)
    best = found or baseline
    simulated = tuning.reasons if _is_same(best, tuning.best) else ()
    return replace(
        tuning,
        knobs=_measured_where_known(tuning.knobs, _knobs(study, rows, study.space.knobs)),
        left_out=dict(study.space.left_out),
        baseline=baseline,
        best=best,
        trials=(*tuning.trials, *measured),
        reasons=(*why, *(f"in the simulation, {reason}" for reason in simulated)),
        trust=None,
        noise_floor=floor,
        stopped_because=notes.get("stopped_because", tuning.stopped_because),
    )


def _best(
    able: Sequence[TrialResult], results: Mapping[int, finals.FinalResult]
) -> tuple[TrialResult | None, tuple[str, ...]]:
    """The candidate with the fewest settings among those as fast as the fastest, and why."""
    faster = [t for t in able if t.change_interval is not None and t.change_interval[1] < 0]
    fastest = min(faster, key=lambda tried: tried.change or 0.0, default=None)
    as_fast = [t for t in faster if t.number in results and results[t.number].is_as_fast]
    best = min(as_fast, key=lambda t: (len(t.settings), t.change or 0.0), default=fastest)
    if best is None or fastest is None or best is fastest:
        return best, ()
    beside = results[best.number].beside
    assert beside is not None
    return best, (
        f"it has the fewest settings of the finalists that are as fast as the fastest, "
        f"{len(best.settings)} instead of {len(fastest.settings)}: compared with the fastest, its "
        f"step changes by {beside.change:+.1%} (95%: {beside.low:+.1%} … {beside.high:+.1%})",
    )


def _after(result: finals.FinalResult | None, tried: TrialResult) -> TrialResult:
    """A candidate with its times from the finals, if it took part."""
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


def _is_step(config: StudyConfig) -> bool:
    return config.objective == "step"


def _listed(rows: Sequence[TrialRow]) -> list[TrialRow]:
    """One row for each settings, without repeats and interrupted trials."""
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
        if baseline is not None and baseline.outcome is not None:
            tried = replace(tried, changes=program_changes(baseline.outcome, outcome))
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
        number=row.number,
        settings=row.settings,
        status=outcome.status,
        origin=row.origin,
        step_us=outcome.step_us,
        low_us=outcome.low_us,
        high_us=outcome.high_us,
        least_us=outcome.least_us,
        interval_us=outcome.interval_us,
        memory_bytes=outcome.memory_bytes,
        compile_s=outcome.compile_s,
        exposed_us=outcome.exposed_us,
        compiler_cycles=(outcome.counts.compiler_cycles or None) if outcome.counts else None,
        basis=outcome.basis,
        change=change,
        change_interval=outcome.change_interval,
        numbers=outcome.numbers,
        note=outcome.note,
        wrong=outcome.wrong,
    )


def _measured_where_known(
    simulated: Sequence[KnobEffect], measured: Sequence[KnobEffect]
) -> tuple[KnobEffect, ...]:
    """Effects of all knobs; measured effects replace simulated ones."""
    found = {knob.name: knob for knob in simulated}
    for knob in measured:
        if knob.effect is not None or knob.name not in found:
            found[knob.name] = replace(knob, basis="measured")
    return tuple(sorted(found.values(), key=lambda k: (k.basis != "measured", *_certainty(k))))


def _knobs(study: Study, rows: Sequence[TrialRow], knobs: Sequence[Knob]) -> tuple[KnobEffect, ...]:
    samples = [
        # Measured candidates count relative to the baseline of their own window.
        (row.settings, score if row.outcome.change is None else 1 + row.outcome.change)
        for row in rows
        if row.outcome is not None and (score := row.outcome.score(study.objective))
    ]
    if any(row.outcome.change is not None for row in rows if row.outcome is not None):
        # The baseline is part of every window, and may never have been a candidate.
        samples.append(({}, 1.0))
    seen = effects(study.space.knobs, samples)
    shares = study.importances()
    found = []
    for knob in knobs:
        effect = seen.get(knob.name)
        moved = sum(knob.name in settings for settings, _ in samples)
        found.append(
            KnobEffect(
                name=knob.name,
                values=knob.values,
                default=knob.default,
                why=knob.why,
                seen_by=knob.seen_by,
                importance=shares.get(knob.name) if moved else None,
                best_value=effect.value if effect else None,
                effect=effect.change if effect else None,
                interval=(effect.low, effect.high) if effect else None,
                tried=moved,
            )
        )
    return tuple(sorted(found, key=_certainty))


def _certainty(knob: KnobEffect) -> tuple[bool, float]:
    """Sort key: significant improvements first, then by the estimated effect."""
    if knob.effect is None or knob.interval is None:
        return True, 1.0
    return knob.interval[1] >= 0, knob.effect


def error_margin(
    trials: Sequence[TrialResult], best: TrialResult | None, has_costs: bool
) -> ErrorMargin | None:
    """The simulator's mean error: smaller differences are ties; None if nothing was simulated.

    It is the error of a step's time, not of a ranking.
    """
    if best is None or best.basis != "simulated" or best.change is None:
        return None
    margin = MEASURED_ERROR if has_costs else MODELLED_ERROR
    costs = "costs of another setting" if has_costs else "modelled costs only"
    basis = f"mean error of predicted steps with {costs}, docs/accuracy.md"
    ties = [
        one
        for one in trials
        if one.status == "ok" and one.number != best.number and one.change is not None
        if (1 + one.change) / (1 + best.change) - 1 < margin
    ]
    return ErrorMargin(margin, basis, len(ties))
