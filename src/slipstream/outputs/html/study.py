"""A tuning study as a page: the best settings, the history, the ranking, and each knob's effect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slipstream.outputs.formatting import plural
from slipstream.outputs.html.charts import ChartCurve, chart, curves
from slipstream.outputs.html.markup import Html, join, tag
from slipstream.outputs.html.page import Page, Section, notes_of, page
from slipstream.outputs.html.tables import (
    Cell,
    Row,
    TableColumn,
    bytes_cell,
    count_cell,
    named_cell,
    number,
    table,
    us_cell,
)
from slipstream.outputs.terminal.compiled.tune import settings_text, study_notes, verdict_of
from slipstream.results.tuning import SAME, KnobEffect, TrialResult, Tuning


def study_page(tuning: Tuning) -> str:
    """The page."""
    return page(study_content(tuning))


def study_content(tuning: Tuning) -> Page:
    """What the page has."""
    facts = [tuning.machine, f"jaxlib {tuning.jaxlib}", plural(len(tuning.trials), "candidate")]
    title = f"{tuning.program} on {tuning.machine} · slipstream tune"
    sections = list(_sections(tuning))
    return Page(title, tuning.program, facts, sections, styles=("report.css",))


def _sections(tuning: Tuning) -> Iterator[Section]:
    yield Section("best", "Best", _best(tuning), verdict_of(tuning))
    # Measured results are not mixed with simulated ones.
    scored = [t for t in tuning.measured or tuning.trials if t.change is not None]
    has_fallen = not tuning.measured or (tuning.best is not None and tuning.best.settings)
    if len(scored) > 1 and has_fallen:
        yield Section(
            "history",
            "History",
            _history(scored),
            "The best change so far, candidate by candidate.",
        )
    if tuning.measured:
        rows = [_run(tried) for tried in ranked(tuning.measured)]
        made = table(_RUNS, rows, "Measured")
        lede = "Compared with the baseline in the same window, the best first."
        yield Section("measured", "Measured", made, lede, str(len(rows)))
    rows = [
        _trial(tried) for tried in ranked([t for t in tuning.trials if t not in tuning.measured])
    ]
    if rows:
        lede = f"{plural(tuning.distinct, 'distinct program')}, the best first."
        name = "Simulated" if tuning.measured else "Candidates"
        yield Section("ranking", name, table(_RANKING, rows, name), lede, str(len(rows)))
    moved = [knob for knob in tuning.knobs if knob.effect is not None]
    if moved:
        lede = "The best value of each knob against its default, with the other knobs unchanged."
        made = table(_KNOBS, [_knob(knob) for knob in moved], "Knobs")
        yield Section("knobs", "Knobs", made, lede, str(len(moved)))
    if tuning.left_out:
        out: list[Row] = [[name, why] for name, why in tuning.left_out.items()]
        made = table([TableColumn("Knob", is_code=True), TableColumn("Why")], out, "Knobs left out")
        yield Section("left-out", "Left out", made, "Knobs that can't matter here.")


def ranked(trials: Sequence[TrialResult]) -> list[TrialResult]:
    """Distinct programs, the best first, then those that failed."""
    scored = [one for one in trials if one.change is not None and one.status != SAME]
    failed = [one for one in trials if not one.is_scored]
    return [*sorted(scored, key=lambda one: one.change or 0.0), *failed]


def _best(tuning: Tuning) -> Html:
    settings = tuning.best.settings if tuning.best is not None else {}
    text = "\n".join(f"--{name}={value}" for name, value in settings.items())
    flags = tag("div", tag("pre", text), class_="do") if settings else None
    reasons = tag("ul", [tag("li", reason) for reason in tuning.reasons])
    return join((flags, reasons if tuning.reasons else None, notes_of(study_notes(tuning))))


def _history(scored: Sequence[TrialResult]) -> Html:
    """The gain of the best so far over the baseline, candidate by candidate."""
    gains, best = [], 0.0
    for tried in scored:
        best = max(best, -(tried.change or 0.0))
        gains.append(best)
    most = max(*gains, 1e-4)
    ends = (f"candidate {scored[0].number}", f"candidate {scored[-1].number}")
    label = f"The best gain so far rose to {most:.1%} in {plural(len(scored), 'candidate')}"
    drawn = curves([ChartCurve(gains)], label, most, f"{most:.1%}", ends)
    return chart("Gain of the best so far", [f"{most:.1%} at the end"], drawn)


_RANKING = [
    number("#"),
    number("Step"),
    number("Change"),
    number("Exposed", wide=True),
    number("Memory", wide=True),
    TableColumn("By", is_wide=True),
    TableColumn("Settings"),
]
_RUNS = [
    number("#"),
    number("Step"),
    number("Change"),
    TableColumn("95%", is_wide=True),
    TableColumn("By", is_wide=True),
    TableColumn("Settings"),
]
_KNOBS = [
    TableColumn("Knob"),
    TableColumn("Best value", is_code=True),
    number("Effect"),
    TableColumn("95%", is_wide=True),
    number("Tried", wide=True),
    TableColumn("Basis", is_wide=True),
]


def _change(tried: TrialResult) -> Cell:
    if tried.change is None:
        return Cell(tried.status, None)
    kind = "down" if tried.change < 0 else "up" if tried.change > 0 else None
    return Cell(tag("span", f"{tried.change:+.1%}", class_=kind), tried.change)


def _run(tried: TrialResult) -> Row:
    """A candidate that was run."""
    span = tried.change_interval
    return [
        count_cell(tried.number),
        us_cell(tried.step_us),
        _change(tried),
        # No-break spaces keep it on one line.
        f"{span[0]:+.1%}\N{NO-BREAK SPACE}…\N{NO-BREAK SPACE}{span[1]:+.1%}" if span else "–",
        tried.origin.removeprefix("preset "),
        named_cell(settings_text(tried.settings), tried.note),
    ]


def _trial(tried: TrialResult) -> Row:
    return [
        count_cell(tried.number),
        us_cell(tried.step_us),
        _change(tried),
        us_cell(tried.exposed_us),
        bytes_cell(tried.memory_bytes),
        tried.origin.removeprefix("preset "),
        named_cell(settings_text(tried.settings), "; ".join(tried.changes) or tried.note),
    ]


def _knob(knob: KnobEffect) -> Row:
    span = f"{knob.interval[0]:+.1%} … {knob.interval[1]:+.1%}" if knob.interval else ""
    return [
        named_cell(knob.name, knob.why),
        knob.best_value or "–",
        Cell(f"{knob.effect or 0:+.1%}", knob.effect),
        span,
        count_cell(knob.tried),
        knob.basis,
    ]
