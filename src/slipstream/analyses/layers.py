"""Exposed time by layer: how long each layer's forward and backward pass wait.

A layer is a numbered scope (`x_layers_3`, `h.3`); in a scanned model, it is a turn of the loop.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from slipstream.analyses.exposures import exposures
from slipstream.analyses.structure import turns_of
from slipstream.profile.events import Array
from slipstream.profile.profile import Profile
from slipstream.profile.timeline.kinds import COMMUNICATION
from slipstream.profile.timeline.steps import averaged_over

OUTSIDE = ""
"""the name of what belongs to no layer"""
_NUMBERED = re.compile(r".*?[._\-]?(\d+)$")


@dataclass(frozen=True)
class LayerExposure:
    """Exposed time of one layer in one phase; means over steps and devices."""

    layer: str
    """`x_layers_3` or `turn 3`; empty outside of layers"""
    number: int
    """-1 outside of layers"""
    phase: str
    communication_us: float
    copy_us: float


def exposed_by_layer(profile: Profile) -> tuple[LayerExposure, ...]:
    """Exposed communication and copies by layer and phase, in the order of layers."""
    whole = not len(profile.steps) or profile.steps.basis == "recording"
    found = exposures(profile, whole)
    times: dict[tuple[int, str, str], list[float]] = {}
    steps = averaged_over(profile, whole)
    devices = profile.event_devices[found.row]
    for device in np.unique(devices).tolist():
        own = found.take(devices == device)
        for at, key in enumerate(_layers(profile, own.row)):
            sums = times.setdefault(key, [0.0, 0.0])
            sums[int(own.kind[at] != COMMUNICATION)] += float(own.exposed_ps[at]) / 1e6 / steps
    rows = [
        LayerExposure(layer, number, phase, *us) for (number, layer, phase), us in times.items()
    ]
    return tuple(sorted(rows, key=lambda row: (row.number < 0, row.number, row.phase)))


def _layers(profile: Profile, rows: Array) -> list[tuple[int, str, str]]:
    """(number, layer, phase) of each event of a device."""
    found = []
    for label, turn in turns_of(profile, rows):
        named = next((part for part in label.scope.split("/") if _NUMBERED.fullmatch(part)), "")
        matched = _NUMBERED.fullmatch(named)
        if matched is not None:
            found.append((int(matched[1]), named, label.phase))
        elif turn is not None:
            found.append((turn, f"turn {turn}", label.phase))
        else:
            found.append((-1, OUTSIDE, label.phase))
    return found
