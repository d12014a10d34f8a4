"""What is measured next: what is known from the screen and from the windows before, put together.

    simplify   the best so far with fewer settings, a few in each window
    together   winners of windows, in one
    screen     the best distinct programs of the simulation
    probe      each knob that only a run can tell, on top of the best so far
    probe      each program that one knob alone makes, in the order of the simulation

Then Optuna's turn, which has all of their times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from slipstream.tune.measure.finals import plain, winners
from slipstream.tune.report.effects import FEWEST, effects
from slipstream.tune.report.report import ranked
from slipstream.tune.search.seeds import PROBE, SIMPLIFY, Suggestion
from slipstream.tune.search.study import TrialRow
from slipstream.tune.space.space import Space

TOGETHER = "together"
FROM_SCREEN = 8
"""of the screen's ranking, so many distinct programs are measured first"""
MOST_TOGETHER = 3
MOST_SIMPLER = 2
"""in one window: the others in it look for more speed"""


def next_candidates(
    space: Space, screened: Sequence[TrialRow], measured: Sequence[TrialRow], objective: str
) -> list[Suggestion]:
    """In the order in which to measure them; those that were measured are among them."""
    ranking = ranked(screened, objective)
    probes = list(_probes(space, best_settings(measured)))
    # Where there is more to find out than the screen knows of, it has half of the first turns.
    first = FROM_SCREEN // 2 if probes else FROM_SCREEN
    found = [
        *islice(_simpler(space, screened, measured, objective), MOST_SIMPLER),
        *_together(measured),
        *(Suggestion(row.settings, row.origin) for row in ranking[:first]),
        *probes,
        *(Suggestion(row.settings, row.origin) for row in ranking[first:FROM_SCREEN]),
        *(Suggestion(row.settings, PROBE) for row in ranking if len(row.settings) == 1),
    ]
    fitting = [Suggestion(_within(space, one.settings), one.origin) for one in found]
    return [one for one in fitting if one.settings]


def best_settings(measured: Sequence[TrialRow]) -> Mapping[str, str]:
    """The fastest that is surely faster than the baseline, without settings that add nothing sure;
    nothing where none is."""
    return next((row.settings for row in plain(winners(measured))), {})


def _simpler(
    space: Space, screened: Sequence[TrialRow], measured: Sequence[TrialRow], objective: str
) -> Iterator[Suggestion]:
    """What the best does with fewer settings, then what the fastest does; nothing twice."""
    best_first = winners(measured)
    known = [dict(row.settings) for row in measured]
    for row in (*plain(best_first)[:1], *best_first[:1]):
        names = _strongest_first(space, row.settings, screened, measured, objective)
        for some in _fewer(names):
            settings = {name: value for name, value in row.settings.items() if name in some}
            if settings and settings not in known:
                known.append(settings)
                yield Suggestion(settings, SIMPLIFY)


def _fewer(names: Sequence[str]) -> Iterator[Sequence[str]]:
    """Of names, the strongest first: that one alone, the stronger half, all but the weakest, then
    each alone and all but each."""
    yield names[:1]
    yield names[: max(len(names) // 2, 1)]
    for name, other in zip(names, reversed(names), strict=True):
        yield [name]
        yield [one for one in names if one != other]


def _strongest_first(
    space: Space,
    settings: Mapping[str, str],
    screened: Sequence[TrialRow],
    measured: Sequence[TrialRow],
    objective: str,
) -> list[str]:
    """Knobs by what they did in runs; until there are some, by what they do in the simulation."""
    samples = [
        (row.settings, 1 + row.outcome.change)
        for row in measured
        if row.outcome is not None and row.outcome.is_ok and row.outcome.change is not None
    ]
    if len(samples) < FEWEST:
        samples = [
            (row.settings, score)
            for row in screened
            if row.outcome is not None and (score := row.outcome.score(objective))
        ]
    seen = effects(space.knobs, samples)
    did = {name: effect.change for name, effect in seen.items()}
    is_known = {name for name, effect in seen.items() if effect.value == settings.get(name)}
    return sorted(settings, key=lambda name: did[name] if name in is_known else 0.0)


def _together(measured: Sequence[TrialRow]) -> Iterator[Suggestion]:
    """The best with each other winner, and with all: where they differ, the better one counts."""
    best_first = [row.settings for row in plain(winners(measured))]
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
