"""What measured candidates say about predictions: how far off they are, and by which factor.

    none     predictions stay as they are
    one      measured ≈ f · predicted
    parts    measured ≈ Σ f(part) · predicted time of the part

The simplest of them counts unless another one predicts candidates that it has not seen much better:
each measured candidate is predicted from the others (leave-one-out).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from slipstream.outputs.formatting import plural, share_text
from slipstream.results.planning import MEASURED, SIMULATED, Agreement, Candidate
from slipstream.results.tuning import OK

FEWEST_FOR_FACTOR = 3
FEWEST_FOR_PARTS = 6
FEWEST_FOR_RANKS = 5
MUCH_BETTER = 0.8
"""a more complicated calibration must leave less than this share of the error"""
_LEAST_SHARE = 0.05
"""parts that are less of every measured step get the factor of the rest"""
_PULL = 0.3
"""how strongly the factors of parts are held to that of the whole step, in units of its error"""


@dataclass(frozen=True)
class Calibration:
    """Factors for predicted steps."""

    factor: float = 1.0
    parts: tuple[tuple[str, float], ...] = ()
    """of parts that have one of their own"""
    error: float = 0.0
    """the largest by which it misses a candidate that it has not seen, as a logarithm"""

    @property
    def is_none(self) -> bool:
        return self.factor == 1.0 and not self.parts

    def step_us(self, candidate: Candidate) -> float:
        step = _predicted(candidate)
        if not self.parts or not candidate.parts_us:
            return step * self.factor
        own = dict(self.parts)
        scale = step / sum(candidate.parts_us.values())
        return scale * sum(us * own.get(k, self.factor) for k, us in candidate.parts_us.items())


Fit = Callable[[Sequence[Candidate]], Calibration]


def calibrate(candidates: Sequence[Candidate]) -> Calibration:
    """The calibration that the measured candidates support."""
    known = compared(candidates)
    found, error = Calibration(), _errors(known, lambda some: Calibration())
    for fewest, fit in ((FEWEST_FOR_FACTOR, _one_factor), (FEWEST_FOR_PARTS, _factor_of_parts)):
        if len(known) < fewest:
            break
        tried = _errors(known, fit)
        if fmean(tried) < MUCH_BETTER * fmean(error):
            found, error = fit(known), tried
    return replace(found, error=max(error, default=0.0))


def calibrated(candidates: Sequence[Candidate], by: Calibration) -> tuple[Candidate, ...]:
    """Candidates that were only simulated, with recalibrated steps."""
    if by.is_none:
        return tuple(candidates)
    return tuple(
        _scaled(one, by) if one.basis == SIMULATED and one.status == OK and one.step_us else one
        for one in candidates
    )


def _scaled(candidate: Candidate, by: Calibration) -> Candidate:
    step = by.step_us(candidate)
    work = candidate.work
    return replace(
        candidate,
        step_us=step,
        low_us=step * math.exp(-by.error),
        high_us=step * math.exp(by.error),
        work_per_s=work / step * 1e6 if work else None,
        predicted_us=_predicted(candidate),
    )


def compared(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Candidates that were simulated and measured."""
    return [one for one in candidates if one.basis == MEASURED and one.predicted_us and one.step_us]


def agreement(candidates: Sequence[Candidate], by: Calibration, note: str = "") -> Agreement | None:
    """How predictions compare with measurements; None without both."""
    known = compared(candidates)
    failed = [one for one in candidates if one.basis == MEASURED and not one.is_fitting]
    if not known:
        return None
    errors = [abs(_predicted(one) / (one.step_us or 1.0) - 1) for one in known]
    memory = [
        abs(one.step_memory_bytes / one.measured_memory_bytes - 1)
        for one in known
        if one.step_memory_bytes and one.measured_memory_bytes
    ]
    found = Agreement(
        measured=len(known),
        failed=len(failed),
        mean_error=fmean(errors),
        worst_error=max(errors),
        rank_correlation=_rank_correlation(known),
        recommended_behind=_behind(known),
        memory_mean_error=fmean(memory) if memory else None,
        memory_worst_error=max(memory, default=None),
        factor=by.factor if not by.parts and not by.is_none else None,
    )
    return replace(found, text=_text(found, by, note))


def _text(found: Agreement, by: Calibration, note: str) -> str:
    errors = f"{share_text(found.mean_error)} on average, {share_text(found.worst_error)} at most"
    said = f"predicted steps are off by {errors}, over {found.measured} measured"
    if found.rank_correlation is not None:
        said += f"; Spearman's correlation {found.rank_correlation:.2f}"
    if found.recommended_behind is not None and found.measured > 1:
        behind = share_text(found.recommended_behind)
        said += f"; the one predicted best is {behind} behind the best measured"
    if found.failed:
        said += f"; {plural(found.failed, 'candidate')} that should run did not"
    if found.measured < FEWEST_FOR_FACTOR:
        rest = "too few to recalibrate the others"
    elif by.is_none:
        rest = "a factor would not predict them better, so the others stay as predicted"
    elif by.parts:
        factors = ", ".join(f"{name} by {factor:.2f}" for name, factor in by.parts)
        rest = f"in the others, times were multiplied: {factors}, the rest by {by.factor:.2f}"
    else:
        rest = f"the others were multiplied by {by.factor:.3f}"
    return "; ".join(filter(None, (said, rest, note)))


def _predicted(candidate: Candidate) -> float:
    return candidate.predicted_us or candidate.step_us or 0.0


def _ratio(candidate: Candidate) -> float:
    return (candidate.step_us or 0.0) / _predicted(candidate)


# Fits.


def _errors(known: Sequence[Candidate], fit: Fit) -> list[float]:
    """How far each candidate is from what the others predict for it, as logarithms."""
    found = []
    for place, one in enumerate(known):
        by = fit([*known[:place], *known[place + 1 :]])
        found.append(abs(math.log((one.step_us or 0.0) / by.step_us(one))))
    return found


def _one_factor(known: Sequence[Candidate]) -> Calibration:
    return Calibration(math.exp(fmean(math.log(_ratio(one)) for one in known)))


def _factor_of_parts(known: Sequence[Candidate]) -> Calibration:
    """Least squares of relative errors, each part's factor pulled towards the common one."""
    common = _one_factor(known).factor
    names = sorted({name for one in known for name in one.parts_us if _share(one, name) > 0})
    large = [n for n in names if max(_share(one, n) for one in known) >= _LEAST_SHARE]
    shares = np.array([[_share(one, name) for name in large] for one in known])
    # (Σ share · factor + rest · common) · predicted / measured = 1
    weights = np.array([1 / _ratio(one) for one in known])
    rest = 1 - shares.sum(1)
    rows = np.vstack([shares * weights[:, None], _PULL * np.eye(len(large))])
    wanted = np.concatenate([1 - rest * common * weights, np.full(len(large), _PULL * common)])
    factors, *_ = np.linalg.lstsq(rows, wanted, rcond=None)
    return Calibration(common, tuple(zip(large, np.maximum(factors, 0.1).tolist(), strict=True)))


def _share(candidate: Candidate, part: str) -> float:
    total = sum(candidate.parts_us.values())
    return candidate.parts_us.get(part, 0.0) / total if total else 0.0


# Order.


def _rank_correlation(known: Sequence[Candidate]) -> float | None:
    if len(known) < FEWEST_FOR_RANKS:
        return None
    predicted = _ranks([_value(one, _predicted(one)) for one in known])
    measured = _ranks([_value(one, one.step_us or 0.0) for one in known])
    if min(np.ptp(predicted), np.ptp(measured)) == 0:
        return None
    return float(np.corrcoef(predicted, measured)[0, 1])


def _ranks(values: Sequence[float]) -> np.ndarray:
    """Ranks, the mean one for equal values."""
    column = np.asarray(values)
    below = (column[None, :] < column[:, None]).sum(1)
    return np.asarray(below + ((column[None, :] == column[:, None]).sum(1) - 1) / 2)


def _behind(known: Sequence[Candidate]) -> float | None:
    """How much longer the one predicted best takes for a unit of work than the best."""
    recommended = min(known, key=lambda one: _value(one, _predicted(one)))
    best = min(_value(one, one.step_us or 0.0) for one in known)
    return _value(recommended, recommended.step_us or 0.0) / best - 1


def _value(candidate: Candidate, step_us: float) -> float:
    """Time for a unit of work."""
    return step_us / (candidate.work or 1.0)
