"""No two GPUs are equally fast, and no model is exact: the slowest device, and a 90% band.

N GPUs of one model      ████████  █████████  ████████▌  ███████▉    one step's kernels of each
all wait at collectives  ─────────────────▶ the slowest decides: σ · E[max of N] over the mean

`slowest` belongs to the prediction itself: modelled kernels take as long as on the slowest of the
machine's GPUs. `spread` says how far the true step may be from it.  Each constant has its source
beside it; none was fitted to a step of many GPUs, one to steps of many slices of TPUs.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from statistics import NormalDist

from slipstream.machines.machine import Estimate, Machine

GPU_SPREAD = 0.01
"""standard deviation of the speed of GPUs of one model, at their power cap.

0.55%: four A100 (nsys-jax, docs/accuracy.md) wait 0.6% of a step for each other
0.95%: two of these four differ by 1.3% in the sum of their kernels
1.5%:  Sinha et al., «Not All GPUs Are Created Equal» (SC22, arXiv:2208.11035): 8% between GPUs
       of a cluster on average, taken as the whiskers of a box plot (5.4 standard deviations)
"""
GPU_SPREAD_ERROR = 0.5
"""relative error of GPU_SPREAD: its sources differ by this much"""
RUN_SPREAD = 0.01
"""standard deviation of one program's step between runs: by 1 to 2% with the time of day (Llama 3,
arXiv:2407.21783, section 3.3.4), by 1.5% between runs of one program (docs/accuracy.md)"""
SLICE_DELAY, SLICE_TAIL = 0.00038, 0.79
"""what slices of TPUs lose by waiting for each other, as a share of the step: hosts to the power of
the second, times the first; 1.8% of 128 hosts, 16% of 2,048.  A power law is how the largest of
many rare delays grows.  Fitted to what MaxText's 32B and 128B models lose from 1 to 2 … 32 slices
of 256 v5e (README of AI-Hypercomputer/maxtext, July 2024); its 16B and 64B models had no part in
it"""
SLICE_ERROR = 0.40
"""relative error of this loss, root mean square: on 32 slices, each of the four models from a fit
to the three others (benchmarks/tpu_slices.py)"""
SLOW_HOSTS, SLOW_HOST = 0.005, 0.10
"""share of hosts that are slow, and how slow: MegaScale (NSDI '24, arXiv:2402.15627), section 6"""

KERNELS: Mapping[str, tuple[float, float]] = {
    "gemm": (0.050, 0.07),
    "fusion": (0.055, 0.17),
    "attention": (0.12, 0.12),
    "convolution": (0.045, 0.14),
    "copy": (0.06, 0.07),
}
"""root mean square error of modelled kernels by kind: of the kind's total in a step, which the
kernels share, and of one kernel.  From docs/accuracy.md's recordings, one value for each model"""
OTHER_KERNELS = (0.12, 0.17)
"""kinds that are not in these recordings: the worst of those that are"""
PALLAS = (0.35, 0.2)
"""kernels of Pallas, whose model was compared with one library's (an assumption): whether
arithmetic and matmuls overlap is worth as much"""
FITTED = (9, 0)
"""compute capability of the GPU that the kernel models were fitted on (H200)"""
SCALED: Mapping[str, float] = {"gemm": 0.03, "fusion": 0.27}
"""further error on other architectures, where models are scaled by data sheets: by kind, as seen on
A100 (docs/accuracy.md); kinds that were not seen there have that of fusions"""
COLLECTIVES = 0.13
"""error of modelled collectives, which those of a step share: a mean error of 10.6% over published
tables (docs/accuracy-collectives.md), as a standard deviation"""
RECORDED = 0.016
"""error of a step from the costs of another recording: a mean error of 1.3% (docs/accuracy.md)"""
CONTENTION = 0.5
"""error of how much kernels and collectives slow each other: products of several waves by up to 40%
of it, those of one wave and kernels that memory limits by up to all of it (docs/simulate.md)"""
DEFAULT = 1.0
"""error of kernels that no model knows, upwards only: their default is every byte once, and a flash
attention takes at least three times as long as that"""

TPU = (0.12, 0.2)
"""of instructions on a TPU, by XLA's cycles or the models here: an assumption, as no recording of a
TPU was compared"""
TPU_COLLECTIVES = 0.2
"""of collectives on a torus and between slices: an assumption, too"""

PAIR_ERROR = 0.02
"""standard error of the ratio of two predicted steps with the same parts: other errors are those of
both, and cancel out (`plan/report/ranking.py`)"""
PAIR_QUANTILE = 1.645
"""of the normal distribution, at 95% for one side: how sure the order of two predictions is"""

CONFIDENCE = 0.9
QUANTILE = 1.94
"""of Student's t at 95% with 6 degrees of freedom: the errors above are seen on eight models"""


def slowest(machine: Machine) -> float:
    """How much longer kernels take on the slowest of a machine's GPUs than on the mean one.

    TPUs run at one clock, but slices wait for each other's hosts.
    """
    if machine.kind == "tpu":
        hosts = machine.slices * machine.hosts
        return 1.0 + (SLICE_DELAY * hosts**SLICE_TAIL if machine.slices > 1 else 0.0)
    # Blom's approximation of the expected largest of N normal values: 0 for one, then 0.59, 1.43,
    # 2.58 and 3.03 standard deviations for 2, 8, 128 and 512.
    rank = (machine.devices - 0.375) / (machine.devices + 0.25)
    return 1.0 + GPU_SPREAD * NormalDist().inv_cdf(rank)


def spread(
    estimates: Mapping[str, Estimate],
    executions: Mapping[str, int],
    machine: Machine,
    slowed: float = 0.0,
) -> tuple[float, float]:
    """The ends of the step's 90% band, relative to the prediction: (0.93, 1.08).

    `executions` counts what the step waits for: a collective that is hidden has no part in it.
    `slowed` is the share of the step that kernels take longer because collectives run beside them.
    """
    errors, unknown = _cost_errors(estimates, executions, machine)
    waited = (slowest(machine) - 1.0) * (SLICE_ERROR if machine.kind == "tpu" else GPU_SPREAD_ERROR)
    error = math.hypot(*errors, waited, CONTENTION * slowed)
    # Slow hosts and unknown kernels can only make the step longer.
    is_slow = 1.0 - (1.0 - SLOW_HOSTS) ** (machine.slices * machine.hosts)
    late = SLOW_HOST * math.sqrt(is_slow * (1.0 - is_slow)) if machine.devices > 1 else 0.0
    return math.exp(-QUANTILE * error), math.exp(QUANTILE * math.hypot(error, late, unknown))


def _cost_errors(
    estimates: Mapping[str, Estimate], executions: Mapping[str, int], machine: Machine
) -> tuple[list[float], float]:
    """The independent standard errors of the sum of all times, as shares of it; of unknown kernels.

    Within a kind, errors have a part that all kernels share and a part of each kernel's own, which
    cancels out in a sum; between kinds they are independent.
    """
    totals: dict[str, float] = defaultdict(float)
    squares: dict[str, float] = defaultdict(float)
    for name, estimate in estimates.items():
        us = estimate.us * executions.get(name, 0)
        kind = _error_kind(estimate)
        totals[kind] += us
        squares[kind] += us * us
    everything = sum(totals.values())
    if not everything:
        return [], 0.0
    unknown = DEFAULT * totals.pop("default", 0.0) / everything
    parts = []
    for kind, total in totals.items():
        shared, own = _errors(kind, machine)
        parts.append(math.hypot(shared * total, own * math.sqrt(squares[kind])) / everything)
    # Costs of a recording contain that GPU and that run; the models rest on one GPU.
    fresh = 1.0 - totals.get("recorded", 0.0) / everything
    return [*parts, fresh * GPU_SPREAD, fresh * RUN_SPREAD], unknown


def _error_kind(estimate: Estimate) -> str:
    """What an estimate's error depends on: its basis, and the kind of a modelled kernel."""
    if estimate.basis in ("modelled", "compiler"):
        return estimate.kind
    return "default" if estimate.basis == "default" else "recorded"


def _errors(kind: str, machine: Machine) -> tuple[float, float]:
    """(shared by a kind's kernels, of each kernel's own)."""
    if machine.kind == "tpu" and kind != "recorded":
        return (TPU_COLLECTIVES, 0.0) if kind == "collective" else TPU
    if kind in ("recorded", "collective"):
        return RECORDED if kind == "recorded" else COLLECTIVES, 0.0
    shared, own = PALLAS if kind == "kernel" else KERNELS.get(kind, OTHER_KERNELS)
    if machine.gpu.compute_capability != FITTED:
        shared = math.hypot(shared, SCALED.get(kind, SCALED["fusion"]))
    return shared, own
