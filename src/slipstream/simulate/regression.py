"""Whether a change of code makes the predicted step slower, or its memory larger.

Predictions have no noise, but errors, and most of them are those of the models: both predictions
have them, and they cancel out. What two steps spend different shares of their time on makes the
rest (as in `plan/report/ranking.py`). A step is slower only beyond that error; XLA's plan of the
memory is exact.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from slipstream.errors import BadInput
from slipstream.machines.jitter import COLLECTIVES, KERNELS, PAIR_ERROR, PAIR_QUANTILE
from slipstream.reading import read_object
from slipstream.results.prediction import Prediction
from slipstream.results.regression import (
    FASTER,
    NOT_TOLD,
    SAME_PROGRAM,
    SLOWER,
    Baseline,
    Regression,
)
from slipstream.units import format_bytes

NEGLIGIBLE = 0.0005
"""changes that are shown as none: far below what the models know"""
COMPARED_VERSIONS = ("slipstream", "jax", "jaxlib")
_EXPECTED = "what `slipstream predict --json` printed, or -o FILE wrote"
_ERRORS = {
    "compute_us": math.hypot(*KERNELS["fusion"]),
    "exposed_communication_us": COLLECTIVES,
    "exposed_copy_us": math.hypot(*KERNELS["copy"]),
}
"""of the time in which two steps differ: few kernels, whose own errors don't cancel out"""


def baseline(prediction: Prediction) -> Baseline:
    """What is compared of a prediction."""
    return Baseline(**{one.name: getattr(prediction, one.name) for one in fields(Baseline)})


def read_baselines(path: str | Path) -> tuple[Baseline, ...]:
    """The predictions in a file that `predict` wrote."""
    data = read_object(path, _EXPECTED)
    entries = data.get("predictions", [data])
    if not isinstance(entries, list):
        raise _not_written_by_predict(path)
    return tuple(_read(entry, path) for entry in entries)


def regressions(
    before: Sequence[Baseline],
    after: Sequence[Prediction],
    limit: float | None = None,
    memory_limit: float | None = None,
) -> tuple[Regression, ...]:
    """Each prediction next to the baseline for its machine; limits are shares, such as 0.02."""
    known = {one.machine: one for one in before}
    for one in after:
        if one.machine not in known:
            raise BadInput(
                f"the baseline has no prediction for {one.machine}, only for "
                f"{', '.join(known) or 'no machine'}; predict it again for {one.machine}"
            )
    return tuple(
        regression(known[one.machine], baseline(one), limit, memory_limit) for one in after
    )


def regression(
    before: Baseline,
    after: Baseline,
    limit: float | None = None,
    memory_limit: float | None = None,
) -> Regression:
    """One machine's prediction next to its baseline."""
    is_same = before.fingerprint is not None and before.fingerprint == after.fingerprint
    change = after.step_us / before.step_us - 1 if before.step_us else 0.0
    tells = math.expm1(PAIR_QUANTILE * _pair_error(before, after))
    growth = _growth(before.memory_bytes, after.memory_bytes)
    verdict = SAME_PROGRAM if is_same else _verdict(change, tells)
    failures: list[str] = []
    if limit is not None and verdict == SLOWER and change > limit:
        failures.append(f"the step is slower by {change:.1%}; the limit is {limit:.1%}")
    if not is_same and memory_limit is not None:
        failures += _memory_failures(before, after, growth, memory_limit)
    is_gated = limit is not None or memory_limit is not None
    return Regression(
        before,
        after,
        verdict,
        change,
        tells,
        growth,
        limit,
        memory_limit,
        not failures if is_gated else None,
        tuple(failures),
        tuple(_notes(before, after, verdict, change, tells, limit)),
    )


def _verdict(change: float, tells: float) -> str:
    if change > tells:
        return SLOWER
    return FASTER if math.log1p(change) < -math.log1p(tells) else NOT_TOLD


def _pair_error(one: Baseline, other: Baseline) -> float:
    """The standard error of the logarithm of the ratio of two predicted steps."""
    if not one.step_us or not other.step_us:
        return PAIR_ERROR
    shares = (
        (error, getattr(one, part) / one.step_us - getattr(other, part) / other.step_us)
        for part, error in _ERRORS.items()
    )
    return math.hypot(PAIR_ERROR, *(error * difference for error, difference in shares))


def _growth(before: int | None, after: int | None) -> float | None:
    return after / before - 1 if before and after is not None else None


def _memory_failures(
    before: Baseline, after: Baseline, growth: float | None, limit: float
) -> list[str]:
    if before.memory_bytes is None or after.memory_bytes is None:
        return []
    capacity = after.memory_capacity_bytes
    if before.memory_bytes <= before.memory_capacity_bytes and after.memory_bytes > capacity:
        needs = format_bytes(after.memory_bytes)
        return [f"it no longer fits: a device needs {needs} and has {format_bytes(capacity)}"]
    if growth is not None and growth > limit:
        return [f"a device needs {growth:.1%} more memory; the limit is {limit:.1%}"]
    return []


def _notes(
    before: Baseline,
    after: Baseline,
    verdict: str,
    change: float,
    tells: float,
    limit: float | None,
) -> list[str]:
    notes = []
    if verdict == SAME_PROGRAM and abs(change) > NEGLIGIBLE:
        notes.append("the predictions of one program differ: other costs, options or models")
    elif verdict == NOT_TOLD and abs(change) > NEGLIGIBLE:
        beyond = limit is not None and change > limit
        more = ", so it is no failure" if beyond else ""
        notes.append(
            f"a change of {change:+.1%} is below the {tells:.1%} that two predictions can tell"
            f"{more}"
        )
    if before.program != after.program:
        notes.append(f"the programs have different names: {before.program}, {after.program}")
    differ = [
        f"{name} {before.versions[name]} → {after.versions[name]}"
        for name in COMPARED_VERSIONS
        if name in before.versions and name in after.versions
        and before.versions[name] != after.versions[name]
    ]  # fmt: skip
    if differ:
        notes.append(f"made with other versions, which may be the cause: {', '.join(differ)}")
    return notes


def _read(entry: Any, path: str | Path) -> Baseline:
    if not isinstance(entry, Mapping):
        raise _not_written_by_predict(path)
    times = [one.name for one in fields(Baseline) if one.name.endswith("_us")]
    versions = entry.get("versions", {})
    fingerprint, memory = entry.get("fingerprint"), entry.get("memory_bytes")
    capacity = entry.get("memory_capacity_bytes")
    is_sound = (
        all(_is_number(entry.get(name)) for name in times)
        and all(isinstance(entry.get(name), str) for name in ("machine", "program"))
        and isinstance(fingerprint, str | None)
        and (memory is None or _is_number(memory))
        and _is_number(capacity)
        and isinstance(versions, Mapping)
    )
    if not is_sound:
        raise _not_written_by_predict(path)
    return Baseline(
        machine=entry["machine"],
        program=entry["program"],
        fingerprint=fingerprint,
        **{name: float(entry[name]) for name in times},
        memory_bytes=memory,
        memory_capacity_bytes=entry["memory_capacity_bytes"],
        versions={str(name): str(value) for name, value in versions.items()},
    )


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value) and value >= 0


def _not_written_by_predict(path: str | Path) -> BadInput:
    return BadInput(
        f"{path} is not a baseline; expected {_EXPECTED}: "
        "slipstream predict TARGET --on SPEC -o base.json"
    )
