"""The first section: the step as one bar, its figures, and warnings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from slipstream.analyses.summary import StepTimes, Summary
from slipstream.outputs.formatting import plural, ratio, share_text, steps_text, time_text
from slipstream.outputs.html.charts import BarPart, bar, chart, columns, legend
from slipstream.outputs.html.markup import Html, join, tag
from slipstream.outputs.html.page import Section
from slipstream.outputs.html.report_data import Results

MAX_STEPS = 240
FEW_STEPS = 8
"""up to this many are shown as rows, more as columns"""
LARGE = 0.02
"""share of the step above which a part is mentioned"""


def overview_section(found: Results) -> Section:
    """Where the step went."""
    times = found.summary.per_step
    parts = [
        _figures(found),
        step_bar(times, "The median step"),
        phases_bar(found.summary),
        _steps(found),
        tag("p", found.detail, class_="note") if found.detail else join(()),
        warnings(found.summary),
    ]
    return Section("overview", "Overview", join(parts), _lede(found))


def step_parts(times: StepTimes) -> list[BarPart]:
    """The parts of a step, in the order of the bar."""
    named = (
        ("compute", times.compute_us, "compute"),
        ("exposed communication", times.exposed_communication_us, "communication"),
        ("exposed copies", times.exposed_copy_us, "copy"),
        ("idle", times.idle_us, "idle"),
    )
    return [BarPart(name, us, kind, time_text(us)) for name, us, kind in named if us > 0]


def step_bar(times: StepTimes, label: str, total: float | None = None) -> Html:
    """The step as one bar, and what its colours mean."""
    parts = step_parts(times)
    said = ", ".join(f"{part.name} {part.text}" for part in parts)
    added = sum(part.value for part in parts)
    whole = max(times.wall_us, added)
    drawn = bar(parts, f"{label}: {time_text(times.wall_us)}, {said}", total or whole)
    notes = []
    if abs(added - times.wall_us) > LARGE * times.wall_us:
        notes.append("Each part is a median over the steps, so the parts don't add up to the step.")
    if times.unattributed_us:
        share = share_text(ratio(times.unattributed_us, times.wall_us))
        amount = time_text(times.unattributed_us)
        notes.append(f"{amount} of it ({share}) belongs to no instruction.")
    said_below = [tag("p", note, class_="note unattributed") for note in notes]
    return join((drawn, legend(parts, times.wall_us), said_below))


def _lede(found: Results) -> Html:
    times, steps = found.summary.per_step, found.summary.step_count
    if not times.wall_us:
        return join("Nothing ran on a device in this recording.")
    waits = [
        f"{_amount(us, times)} for {what}"
        for us, what in (
            (times.exposed_communication_us, "communication"),
            (times.exposed_copy_us, "copies"),
        )
        if us > LARGE * times.wall_us
    ]
    said = [f"compute waits {' and '.join(waits)}"] if waits else []
    if times.idle_us > LARGE * times.wall_us:
        said.append(f"nothing runs for {_amount(times.idle_us, times)}")
    unit = "A step" if steps else "The recording"
    verb = "would take" if found.is_predicted else "takes"
    begin = join((unit, f" {verb} ", tag("b", time_text(times.wall_us)), "; "))
    if not said:
        return join((begin, "it computes nearly all of the time, so better overlap can't help."))
    return join((begin, ", and ".join(said), "."))


def _amount(us: float, times: StepTimes) -> str:
    return f"{time_text(us)} ({_share(us, times)})"


def _figures(found: Results) -> Html:
    summary, times = found.summary, found.summary.per_step
    steps = (
        f"{steps_text(summary.step_count)}, {_basis(summary)}"
        if summary.step_count
        else "the whole recording: no steps were found"
    )
    figures = [
        ("Step" if summary.step_count else "Recording", time_text(times.wall_us), steps, True),
        ("Compute", _share(times.compute_us, times), time_text(times.compute_us), False),
        _waits("Exposed communication", times.exposed_communication_us, times.communication_us),
        _waits("Exposed copies", times.exposed_copy_us, times.copy_us),
        ("Idle", _share(times.idle_us, times), time_text(times.idle_us), False),
        _mfu(found),
    ]
    return tag("dl", [_figure(*figure) for figure in figures if figure], class_="figures")


def _figure(name: str, value: str, below: str, is_first: bool) -> Html:
    return tag(
        "div",
        tag("dt", name),
        tag("dd", value, tag("small", below)),
        class_="figure first" if is_first else "figure",
    )


def _basis(summary: Summary) -> str:
    words = {"annotations": "by annotation", "executions": "by execution"}
    return words.get(summary.step_basis, summary.step_basis)


def _share(us: float, times: StepTimes) -> str:
    return share_text(ratio(us, times.wall_us))


def _waits(name: str, exposed_us: float, all_us: float) -> tuple[str, str, str, bool] | None:
    if not all_us:
        return None
    hidden = share_text(1 - exposed_us / all_us, 0)
    return name, time_text(exposed_us), f"of {time_text(all_us)}; {hidden} is hidden", False


def _mfu(found: Results) -> tuple[str, str, str, bool] | None:
    roof = found.roofline
    if roof.mfu is None:
        return None
    more = f"; with recomputation {share_text(roof.hfu or 0.0)}" if roof.remat_flops else ""
    return "MFU", share_text(roof.mfu), f"of {roof.model}'s {roof.dtype} peak{more}", False


def phases_bar(summary: Summary) -> Html | None:
    """Device time by phase; None if there is only one."""
    phases = {name: us for name, us in summary.phases_us.items() if us}
    if len(phases) < 2:
        return None
    parts = [
        BarPart(name, us, f"p{at}", time_text(us)) for at, (name, us) in enumerate(phases.items())
    ]
    whole = sum(phases.values())
    heading = tag("h3", "Device time by phase")
    return join((heading, bar(parts, "Device time by phase", size="thin"), legend(parts, whole)))


def _steps(found: Results) -> Html | None:
    """Each step separately, to show how they vary."""
    by_step = found.overlap.by_step
    if len(by_step) < 2:
        return None
    several = len({(step.host, step.device) for step in by_step}) > 1
    shown = [
        (f"{one.number} · {one.device}" if several else str(one.number), times)
        for one, times in zip(by_step, found.steps, strict=True)
    ]
    size = math.ceil(len(shown) / MAX_STEPS)
    shown = [
        max(shown[at : at + size], key=lambda one: one[1].wall_us)
        for at in range(0, len(shown), size)
    ]
    least, most = (pick(times.wall_us for _, times in shown) for pick in (min, max))
    title = "Every step of every device" if several else "Every step"
    if len(shown) <= FEW_STEPS:
        return join((tag("h3", title), _rows(shown, most)))
    stacks = [
        [replace(part, name=f"step {name}, {part.name}") for part in step_parts(times)]
        for name, times in shown
    ]
    label = f"{plural(len(shown), 'step')}, from {time_text(least)} to {time_text(most)}"
    plot = tag("div", columns(stacks, label, most), class_="plot")
    thinned = f"the slowest of every {size}" if size > 1 else ""
    facts = [thinned, f"{time_text(least)} to {time_text(most)}"]
    return chart(title, facts, plot)


def _rows(steps: Sequence[tuple[str, StepTimes]], most: float) -> Html:
    rows = []
    for name, times in steps:
        rows += [
            tag("span", name, class_="name"),
            bar(step_parts(times), f"Step {name}: {time_text(times.wall_us)}", most, "thin"),
            tag("span", time_text(times.wall_us), class_="amount"),
        ]
    return tag("div", rows, class_="bars rows")


def warnings(summary: Summary) -> Html | None:
    """Warnings about the recording."""
    if not summary.warnings:
        return None
    items = [tag("li", warning.message, data_code=warning.code) for warning in summary.warnings]
    return join((tag("h3", "About this recording"), tag("ul", items, class_="warnings")))
