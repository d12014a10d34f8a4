"""One layer of Llama-2-70B on 128 and 2,048 H100: published costs of its instructions, predicted.

The costs were measured in training, where collectives hide behind products.  So each is predicted
alone and beside the other.  Products have a collective beside them for a part of their time, which
follows from the measured costs of a whole layer; the error is that of the mean.
"""

from __future__ import annotations

import gzip
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from slipstream.machines.features import KernelFeatures
from slipstream.machines.gemm_model import Gemm
from slipstream.machines.gpus import networks
from slipstream.machines.kernel_model import kernel_us, parameters
from slipstream.machines.machine import Machine
from slipstream.machines.power import activity, highest_share, joules
from slipstream.machines.topology import machine
from slipstream.simulate.engine import simulation
from slipstream.sources.hlo.reader import program_from_text

COST = re.compile(r'name:\s*"([^"]+)"\s*cost_us:\s*([\d.]+)')
WIDTH, HIDDEN, HEADS, SEQUENCE = 8192, 28672, 64, 4096
WEIGHTS = 855_640_064
GROUP = 128
"""GPUs that share a layer's weights; in the larger job, several such groups communicate at once"""
PREFIXES = {"all-gather": ("all-gather",), "reduce-scatter": ("reduce-scatter",)}
PRODUCTS = 8
COMPUTED = {
    "product, 28672": 11,
    "product, 8192": 6,
    "attention, forward": 1,
    "attention, backward": 1,
}
"""executions for one layer in the forward and the backward pass, as the files have them"""
MOVED = {"all-gather": 2, "reduce-scatter": 1}
GOAL = 0.10


@dataclass(frozen=True)
class Cost:
    what: str
    measured_us: float
    """median"""
    low_us: float
    high_us: float
    alone_us: float
    beside_us: float
    """beside collectives or products"""
    share: float
    """of its time that it is beside them"""

    @property
    def predicted_us(self) -> float:
        return self.alone_us + self.share * (self.beside_us - self.alone_us)

    @property
    def error(self) -> float:
        return self.predicted_us / self.measured_us - 1


def page(folder: Path, stated: Mapping[str, Any]) -> Iterator[str]:
    yield f"{'':30}{'measured, µs':>24}{'alone':>9}{'beside':>9}{'mean':>9}{'error':>8}"
    errors = []
    for facts in stated["files"]:
        yield facts["file"]
        for cost in costs(folder, stated, facts):
            errors.append(abs(cost.error))
            span = f"{cost.measured_us:,.0f} ({cost.low_us:,.0f} … {cost.high_us:,.0f})"
            times = f"{cost.alone_us:>9,.0f}{cost.beside_us:>9,.0f}{cost.predicted_us:>9,.0f}"
            yield f"  {cost.what:28}{span:>24}{times}{cost.error:>+8.1%}"
    yield f"\nworst {max(errors):.1%} (goal {GOAL:.0%})"


def costs(folder: Path, stated: Mapping[str, Any], facts: Mapping[str, Any]) -> Iterator[Cost]:
    text = gzip.decompress((folder / facts["file"]).read_bytes()).decode()
    found = [(name, float(us)) for name, us in COST.findall(text)]
    measured = {}
    for what, (low, high) in facts["between"].items():
        prefixes = PREFIXES.get(what, ("custom-call", "cublas-gemm"))
        measured[what] = [
            us for name, us in found if name.startswith(prefixes) and low <= us <= high
        ]
    shares = time_beside(measured)
    where = a3_mega(stated, facts["hosts"])
    predicted = predictions(where, facts["tokens"], shares["product, 28672"], others(found))
    for what, us in measured.items():
        alone, beside = predicted[what]
        yield Cost(what, statistics.median(us), min(us), max(us), alone, beside, shares[what])


def time_beside(measured: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The share of its time that each kind has the other beside it: the longer one, a part."""

    def total(times: Mapping[str, int]) -> float:
        return sum(n * statistics.median(measured[what]) for what, n in times.items())

    both = min(total(COMPUTED), total(MOVED))
    products, collectives = both / total(COMPUTED), both / total(MOVED)
    return {**dict.fromkeys(COMPUTED, products), **dict.fromkeys(MOVED, collectives)}


def a3_mega(stated: Mapping[str, Any], hosts: int) -> Machine:
    bandwidth = stated["gbps"] * 1e9 / 8
    network = replace(networks()["ethernet"], bandwidth=bandwidth, latency_us=stated["latency_us"])
    # MaxText's synthetic data, which such runs use, is token 0 everywhere.
    made = machine(f"{hosts}x8xH100")
    return replace(made, network=network, activity=activity("equal tokens"))


def others(found: Sequence[tuple[str, float]]) -> float:
    """The time of fusions, which memory limits, over that of products and attention."""
    dense = fused = 0.0
    for name, us in found:
        dense += us * name.startswith(("custom-call", "cublas-gemm"))
        fused += us * ("fusion" in name)
    return fused / dense


def predictions(
    where: Machine, tokens: int, share: float, others: float
) -> dict[str, tuple[float, float]]:
    """(alone, beside) of each kind of instruction, at the clock of the whole layer.

    Products have a collective beside them for a share of their time.
    """
    works = layer_works(tokens)
    found, slower = {}, 1.0
    for width in (WIDTH, HIDDEN):
        alone, beside_us = beside("all-gather", where, tokens, width)["product"]
        found[f"product, {width}"] = (alone, beside_us)
        slower = 1 + share * (beside_us / alone - 1)

    def dense_us(clock: float) -> float:
        gpu = where.gpu.at(clock)
        return sum(n * kernel_us(works[what], gpu, parameters()) for what, n in COMPUTED.items())

    moved = (
        others * dense_us(1.0) / 1e6 * where.gpu.memory_bandwidth * parameters()["loop"]["memory"]
    )
    energy = joules(KernelFeatures("loop", int(moved)), where.gpu)
    energy += sum(n * joules(works[what], where.gpu) for what, n in COMPUTED.items())
    clock = highest_share(
        where.gpu,
        energy * where.activity,
        lambda clock: (dense_us(clock) * slower + others * dense_us(1.0)) / 1e6,
    )
    gpu = where.gpu.at(clock)
    for what, features in works.items():
        us = kernel_us(features, gpu, parameters())
        alone, beside_us = found.get(what, (us, us))
        found[what] = (us, us * beside_us / alone)
    for kind in PREFIXES:
        found[kind] = beside(kind, where, tokens, HIDDEN)["collective"]
    return found


def layer_works(tokens: int) -> dict[str, KernelFeatures]:
    """The kernels of COMPUTED."""
    found = {}
    for width in (HIDDEN, WIDTH):
        arrays = tokens * WIDTH + WIDTH * width + tokens * width
        gemm = Gemm(1, tokens, width, WIDTH, "bf16")
        found[f"product, {width}"] = KernelFeatures(
            "gemm", 2 * arrays, written=2 * tokens * width, gemm=gemm
        )
    gemm = Gemm(tokens // SEQUENCE * HEADS, SEQUENCE, SEQUENCE, WIDTH // HEADS, "bf16")
    for form, count in (("forward", 4), ("backward", 8)):
        found[f"attention, {form}"] = KernelFeatures(
            "attention", count * tokens * WIDTH * 2, gemm=gemm, form=form, is_causal=True
        )
    return found


def beside(kind: str, where: Machine, tokens: int, width: int) -> dict[str, tuple[float, float]]:
    """Products with a collective of the layer's weights beside the first of them."""
    step = simulation(program_from_text(program(kind, where.devices, tokens, width)), where)
    events = step.profile.events
    names = [events.texts[i] for i in events["instruction"][:].tolist()]
    times = dict(zip(names, (events["duration_ps"][:] / 1e6).tolist(), strict=True))
    start = f"{kind}-start"
    return {
        "product": (step.estimates["dot.0"].us, times["dot.0"]),
        "collective": (step.estimates[start].us, times[start]),
    }


def program(kind: str, devices: int, tokens: int, width: int) -> str:
    """A scheduled program: a collective, products beside it, and the wait for it."""
    shard, whole = f"bf16[{WEIGHTS // GROUP}]{{0}}", f"bf16[{WEIGHTS}]{{0}}"
    grouped = f"[{devices // GROUP},{GROUP}]<=[{devices}]"
    groups = f"channel_id=1, replica_groups={grouped}, dimensions={{0}}"
    into, out = (shard, whole) if kind == "all-gather" else (whole, shard)
    sums = "" if kind == "all-gather" else ", to_apply=add"
    result = f"bf16[{tokens},{width}]{{1,0}}"
    contracting = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    dots = "".join(f"  dot.{i} = {result} dot(x, w), {contracting}\n" for i in range(PRODUCTS))
    return f"""HloModule layer, is_scheduled=true, num_partitions={devices}

add {{
  a = bf16[] parameter(0)
  b = bf16[] parameter(1)
  ROOT sum = bf16[] add(a, b)
}}

ENTRY main {{
  x = bf16[{tokens},{WIDTH}]{{1,0}} parameter(0)
  w = bf16[{WIDTH},{width}]{{1,0}} parameter(1)
  weights = {into} parameter(2)
  {kind}-start = ({into}, {out}) {kind}-start(weights), {groups}, use_global_device_ids=true{sums}
{dots}  {kind}-done = {out} {kind}-done({kind}-start)
  ROOT t = ({out}, {result}) tuple({kind}-done, dot.0)
}}
"""
