"""Simulated steps: how a profile says that it is one, and of which machine."""

from __future__ import annotations

import re

from slipstream.profile.profile import Profile, ProfileWarning

CODE = "simulated"
_STATED = re.compile(r"predicted for one device of (.{1,200}?); no such step was run")


def simulated_warning(machine: str) -> ProfileWarning:
    """What a simulated profile says about itself; a file keeps it."""
    text = f"these times are predicted for one device of {machine}; no such step was run"
    return ProfileWarning(CODE, text)


def is_simulated(profile: Profile) -> bool:
    """Whether no device ran these steps."""
    return any(warning.code == CODE for warning in profile.warnings)


def simulated_machine(profile: Profile) -> str | None:
    """The machine that a profile was simulated for, as it was written; None for a recording."""
    stated = (_STATED.search(one.message) for one in profile.warnings if one.code == CODE)
    return next((found[1] for found in stated if found is not None), None)
