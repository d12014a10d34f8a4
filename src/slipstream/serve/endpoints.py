"""The API of the viewer's page; parameters come from the query string.

Modules that the first view doesn't need are imported on first use.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from slipstream.errors import BadInput
from slipstream.profile.events import Array, Table
from slipstream.profile.profile import Profile
from slipstream.serve import encoding
from slipstream.serve.labels import EventNames
from slipstream.serve.scene import Scene, SceneLane

Parameters = Mapping[str, str]
Endpoint = Callable[[Scene, Parameters], Any]
MAX_EXPORTED = 2_000_000
_RANGE = re.compile("([0-9]{1,9})(?:-([0-9]{1,9}))?")


def scene(found: Scene, parameters: Parameters) -> dict[str, Any]:
    """Lanes and time range."""
    return {
        "generation": found.generation,
        "title": " · ".join(member.name for member in found.members),
        "members": [member.name for member in found.members],
        "facts": _facts(found),
        "end_us": found.span_us,
        "stepped": any(len(member.profile.steps) for member in found.members),
        "opens_us": found.typical_step(),
        "lanes": [_lane(found, number, lane) for number, lane in enumerate(found.lanes)],
        "warnings": [w.message for member in found.members for w in member.profile.warnings],
    }


def structure(found: Scene, parameters: Parameters) -> list[dict[str, Any]]:
    """The lanes of structure, which are drawn above the streams of their device."""
    first = len(found.lanes)
    for layer in found.layers:
        if isinstance(layer.names, EventNames):
            layer.names.make_labels()
    return [_lane(found, first + at, lane) for at, lane in enumerate(found.structure_lanes)]


def _lane(found: Scene, number: int, lane: SceneLane) -> dict[str, Any]:
    kind = "structure" if lane.level else "lane" if lane.layer.is_host else "stream"
    return {
        "id": number,
        "name": lane.name,
        "title": lane.title,
        "group": lane.group,
        "member": found.members.index(lane.layer.member),
        "kind": kind,
        "depths": len(lane.tracks),
        "collapsed": lane.collapsed,
    }


def _facts(found: Scene) -> list[str]:
    profiles = [member.profile for member in found.members]
    events = sum(len(p.events) for p in profiles)
    hosts = sum(len(p.hosts) for p in profiles)
    devices = sum(len(p.devices) for p in profiles)
    steps = [p.steps.count for p in profiles if len(p.steps) and p.steps.basis != "recording"]
    return [
        f"{events:,} device events",
        f"{hosts} host{'s' * (hosts != 1)}, {devices} device{'s' * (devices != 1)}",
        " and ".join(f"{count:,}" for count in steps) + " steps" if steps else "no steps",
    ]


def slices(found: Scene, parameters: Parameters) -> bytes:
    window = _window(parameters)
    pixels = int(_number(parameters, "pixels"))
    lanes, tops = (
        _numbers(parameters.get(name, ""), len(found.all_lanes)) for name in ("lanes", "tops")
    )
    return encoding.slices(found, *window, pixels, lanes, tops)


def search(found: Scene, parameters: Parameters) -> dict[str, Any]:
    from slipstream.serve import search

    text = parameters.get("text", "")[:200]
    return search.search(found, text, *_window(parameters))


def detail(found: Scene, parameters: Parameters) -> dict[str, Any] | None:
    from slipstream.serve import details

    lane, depth = (int(_number(parameters, name)) for name in ("lane", "depth"))
    start_us = _number(parameters, "start_us")
    return details.detail(found, lane, start_us, depth)


def summary(found: Scene, parameters: Parameters) -> dict[str, Any]:
    from slipstream.serve import range_summary

    return range_summary.summary(found, *_window(parameters))


def perfetto(found: Scene, parameters: Parameters) -> bytes:
    """A window of one profile, as a trace for ui.perfetto.dev."""
    from slipstream.outputs.perfetto.trace import perfetto_bytes

    number = int(_number(parameters, "member"))
    if not 0 <= number < len(found.members):
        raise BadInput(f"there is no profile {number} (there are {len(found.members)}); reload")
    from_us, to_us = _window(parameters)
    layers = found.members[number].layers
    window = (found.ps(layers[0], from_us), found.ps(layers[0], to_us)) if layers else (0, 0)
    return b"".join(perfetto_bytes(_cut(found.members[number].profile, *window)))


def _cut(profile: Profile, from_ps: int, to_ps: int) -> Profile:
    events = _seen(profile.events, from_ps, to_ps)
    host_events = _seen(profile.host_events, from_ps, to_ps)
    count = len(events) + len(host_events)
    if count > MAX_EXPORTED:
        raise BadInput(
            f"{count:,} events are visible, more than Perfetto opens easily "
            f"({MAX_EXPORTED:,}); zoom in, or export all of them: slipstream export PATH -o FILE"
        )
    return replace(profile, events=profile.events.take(events),
                   host_events=profile.host_events.take(host_events))  # fmt: skip


def _seen(table: Table, from_ps: int, to_ps: int) -> Array:
    starts = table["start_ps"]
    return np.flatnonzero((starts < to_ps) & (starts + table["duration_ps"] > from_ps))


def _window(parameters: Parameters) -> tuple[float, float]:
    from_us, to_us = (_number(parameters, name) for name in ("from_us", "to_us"))
    if not from_us < to_us:
        raise BadInput(f"the window ends before it begins ({from_us} to {to_us} µs); reload")
    return from_us, to_us


def _number(parameters: Parameters, name: str) -> float:
    try:
        value = float(parameters.get(name, ""))
    except ValueError:
        value = float("nan")
    if not abs(value) < 1e15:
        raise BadInput(f"{name} is {parameters.get(name)!r}, expected a number; reload the page")
    return value


def _numbers(text: str, below: int) -> list[int]:
    """The numbers of `0-3,8`, as lists of lanes are written in a query string."""
    chosen = np.zeros(below, bool)
    for part in text.split(","):
        if matched := _RANGE.fullmatch(part):
            first, last = int(matched[1]), int(matched[2] or matched[1])
            chosen[first : last + 1] = True
    found: list[int] = np.flatnonzero(chosen).tolist()
    return found


ENDPOINTS: dict[str, Endpoint] = {
    "/api/scene": scene,
    "/api/structure": structure,
    "/api/slices": slices,
    "/api/search": search,
    "/api/detail": detail,
    "/api/summary": summary,
    "/api/perfetto": perfetto,
}
