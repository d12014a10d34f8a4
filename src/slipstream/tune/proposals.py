"""What is measured next: what is known from the screen and from the windows before, put together.

    together   winners of windows, in one
    screen     the best distinct programs of the simulation
    probe      each knob that only a run can tell, on top of the best so far
    probe      each program that one knob alone makes, in the order of the simulation

Then Optuna's turn, which has all of their times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from slipstream.tune.finals import winners
from slipstream.tune.report import ranked
from slipstream.tune.space import Space
from slipstream.tune.study import Row
from slipstream.tune.suggestions import PROBE, Suggestion

TOGETHER = "together"
FROM_SCREEN = 8
"""of the screen's ranking, so many distinct programs are measured first"""
MOST_TOGETHER = 3


def proposals(
    space: Space, screened: Sequence[Row], measured: Sequence[Row], objective: str
) -> list[Suggestion]:
    """In the order in which to measure them; those that were measured are among them."""
    ranking = ranked(screened, objective)
    probes = list(_probes(space, best_settings(measured)))
    # Where there is more to find out than the screen knows of, it has half of the first turns.
    first = FROM_SCREEN // 2 if probes else FROM_SCREEN
    found = [
        *_together(measured),
        *(Suggestion(row.settings, row.origin) for row in ranking[:first]),
        *probes,
        *(Suggestion(row.settings, row.origin) for row in ranking[first:FROM_SCREEN]),
        *(Suggestion(row.settings, PROBE) for row in ranking if len(row.settings) == 1),
    ]
    fitting = [Suggestion(_within(space, one.settings), one.origin) for one in found]
    return [one for one in fitting if one.settings]


def best_settings(measured: Sequence[Row]) -> Mapping[str, str]:
    """The fastest that is surely faster than the baseline; nothing where none is."""
    return next((row.settings for row in winners(measured)), {})


def _together(measured: Sequence[Row]) -> Iterator[Suggestion]:
    """The best with each other winner, and with all: where they differ, the better one counts."""
    best_first = [row.settings for row in winners(measured)]
    if len(best_first) < 2:
        return
    best = best_first[0]
    for other in best_first[1:MOST_TOGETHER]:
        yield Suggestion({**other, **best}, TOGETHER)
    all_of_them: dict[str, str] = {}
    for settings in reversed(best_first):
        all_of_them |= settings
    yield Suggestion(all_of_them, TOGETHER)


def _probes(space: Space, base: Mapping[str, str]) -> Iterator[Suggestion]:
    """Knobs that no screen can tell, each value by itself: first one of each."""
    knobs = [knob for knob in space.knobs if knob.seen_by == "measurement"]
    most = max((len(knob.values) for knob in knobs), default=0)
    for place in range(1, most):
        for knob in knobs:
            if place < len(knob.values):
                yield Suggestion({**base, knob.name: knob.values[-place]}, PROBE)


def _within(space: Space, settings: Mapping[str, str]) -> dict[str, str]:
    return space.without_defaults(settings)
