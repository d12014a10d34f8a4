"""Which candidates to measure next, given the simulated ranking and earlier windows.

    simplify   the best so far with fewer settings, a few per window
    together   combinations of winners
    screen     the best distinct programs of the simulation
    probe      each knob that only a measurement can judge, on top of the best so far
    probe      each single-knob program, in the order of the simulation

After these, Optuna proposes candidates based on all times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from slipstream.tune.measure.finals import winners, without_redundant
from slipstream.tune.report.effects import FEWEST, effects
from slipstream.tune.report.report import ranked
from slipstream.tune.search.seeds import PROBE, SIMPLIFY, Suggestion
from slipstream.tune.search.study import SearchSpace, TrialRow

TOGETHER = "together"
FROM_SCREEN = 8
"""distinct programs of the simulated ranking that are measured first"""
MOST_TOGETHER = 3
MOST_SIMPLER = 2
"""simplifications per window; the rest of the window looks for more speed"""


def next_candidates(
    space: SearchSpace, screened: Sequence[TrialRow], measured: Sequence[TrialRow], objective: str
) -> list[Suggestion]:
    """Suggestions in the order to measure them; may include candidates already measured."""
    ranking = ranked(screened, objective)
    probes = list(_probes(space, best_settings(measured)))
    # If some knobs need measurement, the simulated ranking gets only half of the first slots.
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
    """The settings of the fastest significant winner, without redundant ones; empty if none."""
    return next((row.settings for row in without_redundant(winners(measured))), {})


def _simpler(
    space: SearchSpace, screened: Sequence[TrialRow], measured: Sequence[TrialRow], objective: str
) -> Iterator[Suggestion]:
    """The best with fewer settings, then the fastest with fewer; nothing twice."""
    best_first = winners(measured)
    known = [dict(row.settings) for row in measured]
    for row in (*without_redundant(best_first)[:1], *best_first[:1]):
        names = _strongest_first(space, row.settings, screened, measured, objective)
        for some in _fewer(names):
            settings = {name: value for name, value in row.settings.items() if name in some}
            if settings and settings not in known:
                known.append(settings)
                yield Suggestion(settings, SIMPLIFY)


def _fewer(names: Sequence[str]) -> Iterator[Sequence[str]]:
    """Subsets of names (strongest first): the first alone, the stronger half, then each name alone
    and all but each."""
    yield names[:1]
    yield names[: max(len(names) // 2, 1)]
    for name, other in zip(names, reversed(names), strict=True):
        yield [name]
        yield [one for one in names if one != other]


def _strongest_first(
    space: SearchSpace,
    settings: Mapping[str, str],
    screened: Sequence[TrialRow],
    measured: Sequence[TrialRow],
    objective: str,
) -> list[str]:
    """Knobs by measured effect; by simulated effect until enough candidates were measured."""
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
    """The best combined with each other winner, and all combined; the better one's values win."""
    best_first = [row.settings for row in without_redundant(winners(measured))]
    if len(best_first) < 2:
        return
    best = best_first[0]
    for other in best_first[1:MOST_TOGETHER]:
        yield Suggestion({**other, **best}, TOGETHER)
    all_of_them: dict[str, str] = {}
    for settings in reversed(best_first):
        all_of_them |= settings
    yield Suggestion(all_of_them, TOGETHER)


def _probes(space: SearchSpace, base: Mapping[str, str]) -> Iterator[Suggestion]:
    """Values of knobs that only a measurement can judge, one knob at a time."""
    knobs = [knob for knob in space.knobs if knob.seen_by == "measurement"]
    most = max((len(knob.values) for knob in knobs), default=0)
    for place in range(1, most):
        for knob in knobs:
            if place < len(knob.values):
                yield Suggestion({**base, knob.name: knob.values[-place]}, PROBE)


def _within(space: SearchSpace, settings: Mapping[str, str]) -> dict[str, str]:
    return space.without_defaults(settings)
