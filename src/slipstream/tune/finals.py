"""The finals: the winners of all windows run once more, beside each other and the baseline.

Of many candidates the one that measured best is partly the luckiest. Who is best, and by how much,
is said by times that had no part in choosing it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from slipstream.tune.study import Row
from slipstream.tune.windows import Window

FINALISTS = 3
SHARE = 0.15
"""of the budget, which the windows before leave"""
NOTE = "finals"
"""what the study calls them"""


@dataclass(frozen=True)
class Result:
    """What one finalist's step changed, by fresh times."""

    change: float
    low: float
    high: float
    before_us: float


def winners(rows: Sequence[Row]) -> list[Row]:
    """Those that are surely faster than their baseline, the fastest first."""
    found = []
    for row in rows:
        outcome = row.outcome
        if outcome is None or not outcome.is_ok or outcome.change_interval is None:
            continue
        if outcome.change_interval[1] < 0 and row.repeat_of is None:
            found.append((outcome.change or 0.0, row.number, row))
    return [row for _, _, row in sorted(found, key=lambda one: one[:2])]


def written(window: Window, finalists: Mapping[str, int]) -> str:
    """Results by the number of the trial, for the study; empty where the time was too short."""
    found = {
        number: asdict(Result(c.change, c.low, c.high, c.before_us))
        for name, number in finalists.items()
        if (c := window.comparisons.get(name)) is not None
    }
    return json.dumps(found) if found else ""


def read(notes: Mapping[str, str]) -> dict[int, Result]:
    """What `written` gave, if there was one."""
    data = json.loads(notes.get(NOTE) or "{}")
    return {int(number): Result(**result) for number, result in data.items()}
