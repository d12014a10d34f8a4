"""XLA's order, XLA's with costs and ours, simulated with no GPU, beside what no order can beat.

    python benchmarks/schedule.py [--only TEXT] [--quick] [--pax ARCHIVE.zip] [--output FILE.md]

Needs JAX 0.11 or newer, which takes an order.  Each program is compiled by XLA for its machine, and
for one with half the network (half of NVLink's rate on a single host).  *closed* is the share of
the gap between XLA's order with costs and the bound that ours closes; *obeyed* whether what XLA
compiled runs in the order that it was given.  `--pax` adds a program of Pax on four A100 from an
archive of nsys-jax (`tests/jax_nsys/…` of NVIDIA/JAX-Toolbox).  Last, how long the search takes for
programs of 5,000 and 50,000 scheduled instructions.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from slipstream.compiler.archive import read_archived
from slipstream.compiler.targets import Target, identify
from slipstream.errors import SlipstreamError
from slipstream.machines.machine import Estimate, Machine
from slipstream.machines.topology import machine
from slipstream.profile.program import Program
from slipstream.results.scheduling import Scheduling
from slipstream.scheduling.comparison import ScheduleSettings, scheduled
from slipstream.scheduling.schedule import searched
from slipstream.sources.hlo.reader import program_from_text

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "examples"))

from gpt import PIPELINE_FLAGS  # noqa: E402

GPT = str(ROOT / "examples" / "gpt.py")
PUBLISHED = ROOT / "tests" / "data" / "published"
SIZES = {5_000: 30.0, 50_000: 300.0}
"""seconds that the search of this many scheduled instructions may take"""
WORTH, LEAST = 0.03, 0.5
"""where the gap is more than this share of the step, ours is to close at least this much of it"""


@dataclass(frozen=True)
class Case:
    name: str
    target: Target
    spec: str
    flags: Mapping[str, str] = field(default_factory=dict)


def cases(pax: str | None) -> Iterator[Case]:
    unrolled = {"layers": "unrolled"}
    yield Case("GPT, FSDP, scanned", identify(f"{GPT}:build_fsdp"), "8x8xH200")
    yield Case("GPT, FSDP, unrolled", identify(f"{GPT}:build", unrolled), "8xH200")
    yield Case("GPT, FSDP + data, unrolled", identify(f"{GPT}:build", unrolled), "8x8xH200")
    yield Case("GPT, tensor", identify(f"{GPT}:build_tensor"), "8x8xH200")
    yield Case("GPT, pipeline", identify(f"{GPT}:build_pipeline"), "8xH200", PIPELINE_FLAGS)
    moe = str(ROOT / "examples" / "moe.py")
    yield Case("GPT, experts", identify(f"{moe}:build", {"expert": 8}), "8x8xH200")
    if pax:
        yield Case("Pax, FSDP", read_archived(pax).target, "4xA100")
    for name, file, spec in (
        ("Llama 3.1 70B", "hlo_llama31_70b_bf16_16x8.hlo.xz", "16x8xH100"),
        ("Llama 3.1 405B", "hlo_llama31_405b_bf16_64x8.hlo.xz", "64x8xH100"),
    ):
        yield Case(name, identify(str(PUBLISHED / file)), spec)


def half_network(whole: Machine) -> Machine:
    """With half the rate between hosts; on a single host, of NVLink."""
    if whole.hosts > 1:
        return replace(whole, network=replace(whole.network, bandwidth=whole.network.bandwidth / 2))
    return replace(whole, chip=replace(whole.chip, link_bandwidth=whole.gpu.link_bandwidth / 2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="programs whose name has this text")
    parser.add_argument("--quick", action="store_true", help="whole networks and 5,000 only")
    parser.add_argument("--pax", help="an archive of nsys-jax with a program of Pax")
    parser.add_argument("--seconds", type=float, default=20.0, help="of search, for each program")
    parser.add_argument("--output", help="write the tables to a file")
    chosen = parser.parse_args()
    lines = list(printed(tables(chosen)))
    if chosen.output:
        Path(chosen.output).write_text("\n".join(lines) + "\n", encoding="utf-8")


def printed(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        print(line, flush=True)
        yield line


def tables(chosen: argparse.Namespace) -> Iterator[str]:
    settings = ScheduleSettings(seconds=chosen.seconds)
    yield HEAD
    missed: list[str] = []
    for case in cases(chosen.pax):
        if chosen.only not in case.name:
            continue
        for is_half in (False,) if chosen.quick else (False, True):
            where = half_network(machine(case.spec)) if is_half else machine(case.spec)
            label = f"{case.spec}{' ½' if is_half else ''}"
            try:
                found = scheduled(case.target, where, None, replace(settings, flags=case.flags))
            except SlipstreamError as error:
                missed.append(f"{case.name} on {label}: {error}")
                continue
            yield line(case.name, label, found.result)
            missed += misses(case.name, label, found.result)
    yield ""
    yield "goals met on all of them" if not missed else "missed:"
    yield from missed
    if not chosen.only:
        yield ""
        for size, goal in list(SIZES.items())[: 1 if chosen.quick else None]:
            yield timed(size, goal)


HEAD = (
    f"{'':27}{'machine':>12}{'XLA':>22}{'with costs':>22}{'ours':>22}{'bound':>13}"
    f"{'closed':>8}{'memory':>17}{'obeyed':>8}{'search':>8}"
)


def line(name: str, label: str, found: Scheduling) -> str:
    steps = "".join(
        f"{one.step_us / 1e3:>10,.1f}{one.exposed_communication_us / 1e3:>9,.1f} ms"
        for one in (found.xla, found.pgle, found.ours)
    )
    closed = f"{found.closed:.0%}" if found.closed is not None else "–"
    memory = " → ".join(f"{(one.memory_bytes or 0) / 1e9:.1f}" for one in (found.xla, found.ours))
    obeyed = "yes" if found.is_obeyed else "NO"
    return (
        f"{name:27}{label:>12}{steps}{found.bound_us / 1e3:>10,.1f} ms{closed:>8}"
        f"{memory:>14} GB{obeyed:>8}{found.seconds:>6.1f} s"
    )


def misses(name: str, label: str, found: Scheduling) -> Iterator[str]:
    if found.ours.step_us > min(found.xla.step_us, found.pgle.step_us):
        yield f"{name} on {label}: ours is slower"
    if found.gap_us > WORTH * found.pgle.step_us and (found.closed or 0.0) < LEAST:
        yield f"{name} on {label}: closes {found.closed or 0.0:.0%} of the gap"
    if not found.is_obeyed:
        yield f"{name} on {label}: XLA compiled another order"


# How long a search takes.

KERNEL_US, GATHER_US = 40.0, 70.0


def timed(size: int, goal: float) -> str:
    program, costs = built(size)
    begin = time.perf_counter()
    where = machine("8xH200")
    spare = where.chip.memory_bytes
    found = searched(program, where, estimates=costs, spare_bytes=spare, seconds=goal / 3)
    taken = time.perf_counter() - begin
    (whole,) = found.computations
    return (
        f"{len(program.entry.instructions):,} scheduled instructions: {taken:.1f} s "
        f"(goal {goal:.0f} s); {whole.xla_ns / 1e6:.1f} → {whole.found.ns / 1e6:.1f} ms"
    )


def built(size: int) -> tuple[Program, Mapping[str, Estimate]]:
    """Unrolled layers in a row: each gathers a weight right where it needs it, and reduces a
    gradient that nothing waits for."""
    shard, whole = "f32[1024]", "f32[8192]"
    body = [f"%x0 = {whole} parameter(0)", f"%w = {shard} parameter(1)"]
    costs: dict[str, Estimate] = {}
    layer = 0
    while len(body) < size - 1:
        i, last = layer, f"%x{layer}"
        body += [
            f"%b{i} = {shard} bitcast(%w)",
            f"%g{i} = ({shard}, {whole}) all-gather-start(%b{i}), "
            "replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0}",
            f"%h{i} = {whole} all-gather-done(%g{i})",
            f"%k{i} = {whole} multiply({last}, %h{i})",
            f"%l{i} = {whole} add(%k{i}, {last})",
            f"%r{i} = ({whole}, {whole}) all-reduce-start(%k{i}), "
            "replica_groups={{0,1,2,3,4,5,6,7}}, to_apply=%add",
            f"%s{i} = {whole} all-reduce-done(%r{i})",
            f"%x{i + 1} = {whole} negate(%l{i})",
        ]
        costs |= {f"{name}{i}": Estimate(KERNEL_US, "modelled") for name in ("k", "l")}
        costs |= {f"{name}{i}": Estimate(GATHER_US, "modelled") for name in ("g", "r")}
        costs[f"x{i + 1}"] = Estimate(KERNEL_US, "modelled")
        layer += 1
    text = (
        "HloModule layers, is_scheduled=true\n\n"
        "%add (a: f32[], b: f32[]) -> f32[] {\n  %a = f32[] parameter(0)\n"
        "  %b = f32[] parameter(1)\n  ROOT %c = f32[] add(%a, %b)\n}\n\n"
        f"ENTRY %main (x0: {whole}, w: {shard}) -> {whole} {{\n  "
        + "\n  ".join(body)
        + f"\n  ROOT %end = {whole} bitcast(%x{layer})\n}}\n"
    )
    return program_from_text(text), costs


if __name__ == "__main__":
    main()
