"""Policies: how an instruction's many durations become one cost.

typical            the median execution; of collectives, the fastest participant of each one.
                   For almost everything: waiting for a late peer is not what a transfer costs.
percentile:N       the N-th percentile over executions, picked as JAX picks it
                   (JAX_PGLE_AGGREGATION_PERCENTILE): for comparison with AutoPGLE, or to plan
                   for slow executions with a high N.
max-communication  the slowest execution of collectives, the fastest of the rest, as nsys-jax
                   does: starts collectives as early as it can, at the price of memory.
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
    """The policy of a name; `jax` is none of these, since it does not look at executions."""
    if name == "typical":
        return typical
    if name == "max-communication":
        return max_communication
    kind, _, number = name.partition(":")
    if kind == "percentile" and number.isdecimal() and 0 <= int(number) <= 100:
        return lambda measured: percentile(measured.us.ravel(), int(number))
    raise BadInput(f"no policy {name!r}; choose one of: {', '.join(POLICIES)} (N from 0 to 100)")


def typical(measured: Measured) -> float:
    """The median; of a collective, of what its fastest participant took each time."""
    if not measured.is_communication:
        return float(np.median(measured.us))
    return float(np.median(fastest_participants(measured)))


def max_communication(measured: Measured) -> float:
    """The slowest execution of communication, the fastest of anything else."""
    return float(measured.us.max() if measured.is_communication else measured.us.min())


def percentile(values: Array, number: int) -> float:
    """The value at index `int(number / 100 * (count - 1))` of the sorted values, as in JAX."""
    return float(np.sort(values)[int(number / 100 * (len(values) - 1))])


def fastest_participants(measured: Measured) -> Array:
    """For each execution of a collective, the time of the participant that waited least.

    late    ·········████      enters last, waits for nobody: the transfer
    early   █████████████      the same transfer, and the wait
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
            # Hosts that recorded more or fewer runs: those that began nearest belong together.
            runs = np.abs(starts[None, :] - began[:, None]).argmin(axis=1)
        np.minimum.at(least, runs, us)
    return least
