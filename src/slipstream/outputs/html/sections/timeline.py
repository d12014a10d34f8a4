"""The timeline of one step; `report.js` mounts it."""

from __future__ import annotations

from slipstream.outputs.formatting import plural, time_text
from slipstream.outputs.html.markup import Html, join, tag
from slipstream.outputs.html.page import Section
from slipstream.outputs.html.step_data import StepView
from slipstream.profile.profile import Profile


def timeline_section(profile: Profile, view: StepView | None) -> Section:
    """The element for the timeline, and what it shows."""
    if view is None or not view.lanes:
        empty = tag("p", "No device events were recorded, so there is no timeline.", class_="empty")
        return Section("timeline", "Timeline", empty)
    span = (view.shown.end_ps - view.shown.start_ps) / 1e6
    is_step = profile.steps.basis != "recording"
    what = f"Step {view.shown.number}, of median length" if is_step else "The whole recording"
    lede = (
        f"{what}: {plural(view.events, 'event')} in {time_text(span)}. Click a slice for its "
        "source, cost, slack and partner."
    )
    area = tag("div", id="timeline-view", class_="view")
    return Section("timeline", "Timeline", join((area, _notes(view))), lede)


def _notes(view: StepView) -> Html:
    notes = []
    if view.shown.left_out:
        notes.append(
            f"{plural(view.shown.left_out, 'more device')} took part; to see all of them, use: "
            "slipstream serve"
        )
    if view.grain_ns:
        notes.append(
            f"Slices shorter than {time_text(view.grain_ns / 1e3)} are merged to keep this page "
            "small; to see each, use: slipstream serve"
        )
    return join(tag("p", note, class_="note") for note in notes)
