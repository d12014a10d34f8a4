"""`slipstream tune` as text and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.text import Text

from slipstream.machines.tpus import is_slice
from slipstream.outputs.formatting import band_text, plural, time_text
from slipstream.outputs.terminal.layout import (
    WIDTH,
    Line,
    TextColumn,
    heading,
    note_lines,
    paragraph,
    styled_text,
    table_lines,
)
from slipstream.results.tuning import SAME, KnobEffect, TrialResult, Tuning
from slipstream.units import format_bytes

DEFAULT_TOP = 12
_ENDINGS = ("_threshold_bytes", "_bytes")


def tuning_json(tuning: Tuning) -> dict[str, Any]:
    """What `tune --json` prints."""
    return {
        "target": tuning.target,
        "machine": tuning.machine,
        "program": tuning.program,
        "objective": tuning.objective,
        "jaxlib": tuning.jaxlib,
        "baseline": _trial(tuning.baseline) if tuning.baseline else None,
        "best": _trial(tuning.best) if tuning.best else None,
        "reasons": list(tuning.reasons),
        "trust": asdict(tuning.trust) if tuning.trust else None,
        "trials": [_trial(tried) for tried in tuning.trials],
        "distinct_programs": tuning.distinct,
        "knobs": [asdict(knob) for knob in tuning.knobs],
        "left_out": dict(tuning.left_out),
        "noise_floor": asdict(tuning.noise_floor) if tuning.noise_floor else None,
        "stopped_because": tuning.stopped_because,
        "is_finished": tuning.is_finished,
        "worker_s": tuning.seconds,
        "study": tuning.folder,
    }


def _trial(tried: TrialResult) -> dict[str, Any]:
    return asdict(tried)


def render_tuning(tuning: Tuning, width: int = WIDTH, top: int | None = None) -> Text:
    """A study: the verdict, its reasons, the ranking, the knobs."""
    return styled_text(
        [
            *heading([tuning.program, tuning.machine, f"jaxlib {tuning.jaxlib}"], width),
            *_verdict(tuning, width),
            ("", ""),
            *_ranking(tuning, width, top or DEFAULT_TOP),
            ("", ""),
            *_knobs(tuning.knobs, width, top or DEFAULT_TOP),
            *note_lines(study_notes(tuning), width),
        ]
    )


def row_line(tried: TrialResult, width: int = WIDTH) -> str:
    """One candidate on one line, shown while a search runs."""
    figure = _score(tried, "step") if tried.step_us is not None else tried.status
    change = f" {tried.change:+.1%}" if tried.change is not None else ""
    line = f"{tried.number:>3}  {figure:>9}{change:>8}  {settings_text(tried.settings)}"
    return line if len(line) <= width else line[: width - 1] + "…"


def settings_text(settings: Any) -> str:
    """`all_gather_combine_threshold=64 MB`, short enough for a table."""
    if not settings:
        return "(default)"
    return ", ".join(f"{_short(name)}={_value(name, v)}" for name, v in settings.items())


def _short(name: str) -> str:
    for start in ("xla_gpu_experimental_", "xla_gpu_enable_", "xla_gpu_"):
        name = name.removeprefix(start)
    for end in _ENDINGS:
        name = name.removesuffix(end)
    return name


def _value(name: str, value: str) -> str:
    if name.endswith("_bytes") and value.isdigit():
        return format_bytes(int(value)).replace(" ", "")
    return value.removeprefix("WHILE_LOOP_UNROLLING_") or "none"


# The verdict.


def verdict_of(tuning: Tuning) -> str:
    """The best against the baseline, in a line."""
    best, baseline = tuning.best, tuning.baseline
    if best is None or baseline is None:
        return "no trial has finished yet"
    if not best.settings:
        is_so = "nothing is significantly faster than" if tuning.measured else "nothing beats"
        return f"{is_so} the default: {_score(baseline, tuning.objective)}"
    after = _score(best, tuning.objective)
    if tuning.objective == "step" and best.step_us and best.low_us and best.high_us:
        after = band_text(best.step_us, best.low_us, best.high_us)
    said = f"{_score(baseline, tuning.objective)} → {after}, {best.change or 0:+.1%}, {best.basis}"
    if best.change_interval is not None:
        low, high = best.change_interval
        said += f" (95%: {low:+.1%} … {high:+.1%})"
    return said


def _verdict(tuning: Tuning, width: int) -> list[Line]:
    lines: list[Line] = [(line, "bold") for line in paragraph(verdict_of(tuning), width)]
    if tuning.best is None or tuning.baseline is None:
        return lines
    for name, value in tuning.best.settings.items():
        # The winner is never cut short: long lists get places to break.
        said = f"{_short(name)} = {_value(name, value).replace(',', ', ')}"
        lines += [(line, "") for line in paragraph(said, width, "  ", "    ")]
    for reason in tuning.reasons:
        lines += [(line, "dim") for line in paragraph(reason, width, "- ", "  ")]
    return lines


def _score(tried: TrialResult, objective: str) -> str:
    if objective == "memory":
        return format_bytes(tried.memory_bytes) if tried.memory_bytes is not None else "–"
    if objective == "compile":
        return f"{tried.compile_s:.1f} s" if tried.compile_s is not None else "–"
    return time_text(tried.step_us) if tried.step_us is not None else "–"


# The tables.


def _ranking(tuning: Tuning, width: int, top: int) -> list[Line]:
    # Measured results are not mixed with simulated ones.
    listed = tuning.measured or tuning.trials
    scored = [t for t in listed if t.change is not None and t.status != SAME]
    scored.sort(key=lambda tried: tried.change or 0.0)
    rows = [_row(tried, tuning) for tried in scored]
    columns = [
        TextColumn("#", right=True),
        TextColumn(tuning.objective, right=True),
        TextColumn("change", right=True),
        TextColumn("95%" if tuning.measured else "exposed", right=True),
        TextColumn("by"),
        TextColumn("settings", min_width=10),
    ]
    lines = table_lines(columns, rows, width, top) if rows else []
    run, same = len(tuning.measured), sum(t.status == SAME for t in tuning.trials)
    count = len(tuning.trials) - run
    summary = f"{plural(count, 'candidate')}, {plural(tuning.distinct, 'distinct program')}"
    summary += f", {same} compiled to the same program as another" if same else ""
    summary += f"; {run} measured" if run else ""
    return [*lines, *((line, "dim") for line in paragraph(summary, width))]


def _row(tried: TrialResult, tuning: Tuning) -> list[str]:
    return [
        str(tried.number),
        _score(tried, tuning.objective),
        f"{tried.change or 0:+.1%}",
        _interval(tried) if tuning.measured else _exposed(tried),
        tried.origin.removeprefix("preset "),
        settings_text(tried.settings),
    ]


def _exposed(tried: TrialResult) -> str:
    return time_text(tried.exposed_us) if tried.exposed_us is not None else "–"


def _interval(tried: TrialResult) -> str:
    """`–` for candidates dropped early."""
    if tried.change_interval is None:
        return "–"
    low, high = tried.change_interval
    return f"{low:+.1%} … {high:+.1%}"


def _knobs(knobs: Sequence[KnobEffect], width: int, top: int) -> list[Line]:
    moved = [knob for knob in knobs if knob.effect is not None and knob.interval is not None]
    if not moved:
        return []
    columns = [
        TextColumn("knob", min_width=20),
        TextColumn("best", min_width=8, max_width=14),
        TextColumn("effect", right=True),
        TextColumn("95%"),
        TextColumn("tried", right=True),
    ]
    # If candidates ran, the effects of some knobs are still only simulated.
    are_mixed = any(knob.basis == "measured" for knob in moved)
    if are_mixed:
        columns.append(TextColumn("basis"))
    rows = [
        [
            _short(knob.name),
            _value(knob.name, knob.best_value or ""),
            f"{knob.effect:+.1%}",
            f"{knob.interval[0]:+.1%} … {knob.interval[1]:+.1%}" if knob.interval else "",
            str(knob.tried),
            *([knob.basis] if are_mixed else []),
        ]
        for knob in moved
    ]
    return table_lines(columns, rows, width, top)


def _second_opinion(tuning: Tuning, best: TrialResult) -> Iterator[str]:
    """Whether the compiler's own estimate of its operations calls the best faster, too.

    It counts no links, so a setting that only hides communication leaves it as it is.
    """
    before = tuning.baseline.compiler_cycles if tuning.baseline is not None else None
    if not before or not best.compiler_cycles or not best.settings:
        return
    if best.compiler_cycles < before:
        yield f"XLA's own cycles agree: {best.compiler_cycles / before - 1:+.1%} for the best"
        return
    agreed = [
        one
        for one in tuning.trials
        if one.is_scored
        and (one.change or 0.0) < 0
        and one.compiler_cycles
        and one.compiler_cycles < before
    ]
    opinion = f"XLA's own cycles say {best.compiler_cycles / before - 1:+.1%} of the best"
    if not agreed:
        yield f"{opinion}; no candidate is faster by both"
        return
    one = min(agreed, key=lambda tried: tried.change or 0.0)
    yield (
        f"{opinion}; the best by both is {one.number}: {one.change:+.1%} simulated, "
        f"{(one.compiler_cycles or 0) / before - 1:+.1%} in cycles"
    )


def study_notes(tuning: Tuning) -> list[str]:
    """Notes on the numbers of a study."""
    found = []
    trust, best = tuning.trust, tuning.best
    if trust is not None and best is not None and best.change is not None:
        is_clear = -best.change > trust.margin
        gain = "larger" if is_clear else "within that error: measure before you rely on it"
        ties = f"; {plural(trust.ties, 'candidate')} within the error of it" if trust.ties else ""
        found.append(
            f"simulated steps are off by {trust.margin:.1%} on average ({trust.basis}); the best "
            f"gain is {gain}{ties}"
        )
    if is_slice(tuning.machine) and best is not None and best.basis == "simulated":
        found += [
            "no step of a TPU was measured: these are XLA's own cycles and a model of the links "
            "with published figures; time the best on the TPUs before you rely on it",
            *_second_opinion(tuning, best),
        ]
    if (floor := tuning.noise_floor) is not None:
        found.append(
            f"noise floor: the baseline against itself changed by {floor.change:+.1%} "
            f"({floor.low:+.1%} … {floor.high:+.1%})"
        )
    if best is not None and best.numbers.startswith("not checked"):
        found.append(f"results of the best: {best.numbers}")
    if tuning.baseline is not None and tuning.baseline.wrong:
        found.append(f"with the default settings {tuning.baseline.wrong}; then tune again")
    failed: dict[str, int] = {}
    for tried in tuning.trials:
        if not tried.is_scored:
            failed[tried.status] = failed.get(tried.status, 0) + 1
    found += [f"{plural(count, 'candidate')}: {status}" for status, count in failed.items()]
    if tuning.stopped_because:
        found.append(f"stopped: {tuning.stopped_because}")
    return found
