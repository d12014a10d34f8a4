"""The timeline of one step; `report.js` mounts it."""

from __future__ import annotations

from slipstream.outputs.formatting import plural, time_text
from slipstream.outputs.html.markup import Html, join, tag
from slipstream.outputs.html.page import Section
from slipstream.outputs.html.step_data import StepView
from slipstream.profile.events import median
from slipstream.profile.profile import Profile

SAME = 0.02
"""how much longer than the shortest step of a device the shown span may be, to be one length"""


def timeline_section(profile: Profile, view: StepView | None) -> Section:
    """The element for the timeline, and what it shows."""
    if view is None or not view.lanes:
        empty = tag("p", "No device events were recorded, so there is no timeline.", class_="empty")
        return Section("timeline", "Timeline", empty)
    click = "Click a slice for its source, cost, slack and partner."
    lede = f"{_extent(profile, view)} {click}"
    area = tag("div", id="timeline-view", class_="view")
    return Section("timeline", "Timeline", join((area, _notes(view))), lede)


def _extent(profile: Profile, view: StepView) -> str:
    """What is shown: devices whose steps differ have a length and a span of their own."""
    shown, events = view.shown, plural(view.events, "event")
    span = time_text(shown.span_us)
    if profile.steps.basis == "recording":
        return f"The whole recording: {events} in {span}."
    what = f"Step {shown.number}" + ", of median length" * (profile.steps.count > 1)
    lengths = sorted(shown.lengths_us)
    if shown.span_us <= lengths[0] * (1 + SAME):
        return f"{what}: {events} in {span}."
    typical, (least, *_, most) = time_text(float(median(lengths))), map(time_text, lengths)
    return (
        f"{what}: {typical} on its median device, {least} to {most} on all {len(lengths)}. "
        f"The devices don't start together, so {events} span {span}."
    )


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
