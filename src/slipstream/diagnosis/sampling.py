"""A few steps of a long recording: what the rules look at is the same in all of them."""

from __future__ import annotations

import numpy as np

from slipstream.profile.events import distinct
from slipstream.profile.profile import Profile

MOST_EVENTS = 300_000
"""device events that are looked at; a profile with fewer is looked at whole"""
FEWEST_STEPS = 3


def few_steps(profile: Profile, most: int = MOST_EVENTS) -> Profile:
    """The profile with as many steps from its middle as `most` events hold, at least three."""
    steps = profile.steps
    if len(profile.events) <= most or steps.basis == "recording":
        return profile
    numbers = distinct(steps.number)
    wanted = max(FEWEST_STEPS, most * len(numbers) // len(profile.events))
    if wanted >= len(numbers):
        return profile
    first = (len(numbers) - wanted) // 2
    kept = np.isin(steps.number, numbers[first : first + wanted])
    # A last row for events of no step.
    chosen = np.append(kept, False)[steps.of_events(profile)]
    return profile.with_events(profile.events.take(chosen))
