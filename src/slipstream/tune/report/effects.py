"""The effect of each knob's best value, whatever the other knobs were.

Least squares on the logarithm of the objective, one column for each tried value; intervals come
from resampling the candidates. Knobs that only act together have wide intervals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from slipstream.tune.space.knob import Knob

RESAMPLES = 200
FEWEST = 6
"""minimum number of candidates"""
_RIDGE = 1e-3
"""regularisation, for columns that always occur together"""
Sample = tuple[Mapping[str, str], float]
"""settings and score of one candidate"""


@dataclass(frozen=True)
class Effect:
    """The effect of one value relative to the default, as a share; negative is better."""

    value: str
    change: float
    low: float
    high: float
    tried: int


def effects(knobs: Sequence[Knob], samples: Sequence[Sample]) -> dict[str, Effect]:
    """The effect of the best value of each knob that was varied, by name."""
    columns = [
        (knob.name, value)
        for knob in knobs
        for value in knob.values[1:]
        if any(settings.get(knob.name) == value for settings, _ in samples)
    ]
    if len(samples) < FEWEST or not columns:
        return {}
    design = np.array([[settings.get(n) == v for n, v in columns] for settings, _ in samples])
    scores = np.log([score for _, score in samples])
    found = _fit(design.astype(float), scores)
    random = np.random.default_rng(0)
    resampled = np.empty((RESAMPLES, len(columns)))
    for sample in range(RESAMPLES):
        rows = random.integers(0, len(samples), len(samples))
        resampled[sample] = _fit(design[rows].astype(float), scores[rows])
    low, high = np.percentile(resampled, [2.5, 97.5], axis=0)
    best: dict[str, Effect] = {}
    for position, (name, value) in enumerate(columns):
        change = float(np.expm1(found[position]))
        tried = int(design[:, position].sum())
        bounds = (float(np.expm1(low[position])), float(np.expm1(high[position])))
        effect = Effect(value, change, min(bounds[0], change), max(bounds[1], change), tried)
        if name not in best or change < best[name].change:
            best[name] = effect
    return best


def _fit(design: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Ridge regression with a free intercept."""
    centred = design - design.mean(axis=0)
    gram = centred.T @ centred + _RIDGE * np.eye(design.shape[1])
    found: np.ndarray = np.linalg.solve(gram, centred.T @ (scores - scores.mean()))
    return found
