"""Policies: how an instruction's durations are reduced to one cost.

typical            the median execution; for collectives, of the fastest participant each time.
                   The right choice for almost everything: waiting for a late peer is not part
                   of a transfer's cost.
percentile:N       the N-th percentile over executions, picked as JAX picks it
                   (JAX_PGLE_AGGREGATION_PERCENTILE): for comparison with AutoPGLE, or to plan
                   for slow executions with a high N.
max-communication  the slowest execution of collectives and the fastest of the rest, like
                   nsys-jax: starts collectives as early as possible, at the cost of memory.
jax                what JAX's extractor computes, defects included (mean per kernel instead of
                   sum per instruction, programs mixed): for comparison only.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from slipstream.costs.measure import Measured
from slipstream.errors import BadInput
from slipstream.profile.events import Array

POLICIES = ("typical", "percentile:N", "max-communication", "jax")

Policy = Callable[[Measured], float]


def policy_named(name: str) -> Policy:
    """The policy with a name; not `jax`, which doesn't look at executions."""
    if name == "typical":
        return typical
    if name == "max-communication":
        return max_communication
    kind, _, number = name.partition(":")
    if kind == "percentile" and number.isdecimal() and 0 <= int(number) <= 100:
        return lambda measured: percentile(measured.us.ravel(), int(number))
    raise BadInput(f"no policy {name!r}; choose one of: {', '.join(POLICIES)} (N from 0 to 100)")


def typical(measured: Measured) -> float:
    """The median; for a collective, of the fastest participant's times."""
    if not measured.is_communication:
        return float(np.median(measured.us))
    return float(np.median(fastest_participants(measured)))


def max_communication(measured: Measured) -> float:
    """The slowest execution of communication, the fastest of everything else."""
    return float(measured.us.max() if measured.is_communication else measured.us.min())


def percentile(values: Array, number: int) -> float:
    """The value at index `int(number / 100 * (count - 1))` of the sorted values, as in JAX."""
    return float(np.sort(values)[index_of_percentile(number, len(values))])


def index_of_percentile(number: int, count: int) -> int:
    """Where JAX takes a percentile of sorted values."""
    return int(number / 100 * (count - 1))


def fastest_participants(measured: Measured) -> Array:
    """For each execution of a collective, the time of the participant that waited the least.

    late    ·········████      arrives last and waits for nobody: the transfer
    early   █████████████      the wait, then the same transfer
    """
    devices, counts = np.unique(measured.device, return_counts=True)
    first = measured.device == devices[0]
    least: Array = measured.us[first].copy()
    starts = measured.start_ps[first]
    for device in devices[1:]:
        own = measured.device == device
        us, began = measured.us[own], measured.start_ps[own]
        runs = np.arange(len(us))
        if len(set(counts.tolist())) > 1:
            # Hosts recorded different numbers of runs: pair those with the nearest start.
            runs = np.abs(starts[None, :] - began[:, None]).argmin(axis=1)
        np.minimum.at(least, runs, us)
    return least
