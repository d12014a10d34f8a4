"""The collective model against published NCCL tables: its error, and how its parameters are fitted.

    python benchmarks/collectives.py                     prints the error of every table
    python benchmarks/collectives.py --markdown          the same as docs/accuracy-collectives.md
    python benchmarks/collectives.py --fit               fits machines/links.json (needs scipy)

The tables (tests/data/nccl_tables.json) name their sources.  Those marked `held_out` take no part
in the fit.  The error of a point is |model / published - 1|; `--fit` minimises its logarithm.
"""

from __future__ import annotations

import copy
import json
import math
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from slipstream.machines.collectives import links_of
from slipstream.machines.gpus import gpu, networks
from slipstream.machines.machine import Machine
from slipstream.machines.nccl import Group, Parameters, fitted, nccl_time

ROOT = Path(__file__).resolve().parent.parent
TABLES = ROOT / "tests/data/nccl_tables.json"
LINKS = ROOT / "src/slipstream/machines/links.json"
PAGE = ROOT / "docs/accuracy-collectives.md"
MAIN = ("all-gather", "reduce-scatter", "all-reduce")
"""what the goal is about: 15% on the mean"""


@dataclass(frozen=True)
class Point:
    table: dict[str, Any]
    size: int
    published_us: float
    model_us: float
    algorithm: str

    @property
    def error(self) -> float:
        return self.model_us / self.published_us - 1


def points(parameters: Parameters, *, fitting: bool = False) -> list[Point]:
    data = json.loads(TABLES.read_text(encoding="utf-8"))
    found = []
    for table in data["tables"]:
        if fitting and table["held_out"]:
            continue
        group = Group(table["hosts"] * table["gpus_per_host"], table["hosts"])
        links = links_of(machine_of(table))
        forced = table.get("algorithm") or (table.get("ran") if fitting else None)
        for size, us in zip(data["sizes_bytes"], table["us"], strict=True):
            if us is not None:
                choice = nccl_time(table["kind"], size, group, links, parameters, forced)
                found.append(Point(table, size, us, choice.us, choice.algorithm))
    return found


def machine_of(table: dict[str, Any]) -> Machine:
    stated = table.get("network", {"name": "infiniband", "gbps": 400})
    named = next((n for n in networks().values() if n.name == stated["name"]), networks()["ndr"])
    network = replace(
        named,
        bandwidth=stated["gbps"] * 1e9 / 8,
        latency_us=stated.get("latency_us", named.latency_us),
    )
    return Machine(
        "published", gpu(table["gpu"]), network, 1, table["hosts"], table["gpus_per_host"]
    )


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def main_errors(found: list[Point], held_out: bool | None = None) -> list[float]:
    return [
        abs(point.error)
        for point in found
        if point.table["kind"] in MAIN
        and held_out in (None, point.table["held_out"])
        and "outside" not in point.table
    ]


def rows(found: list[Point]) -> Iterator[tuple[dict[str, Any], list[Point]]]:
    grouped: dict[int, list[Point]] = defaultdict(list)
    for point in found:
        grouped[id(point.table)].append(point)
    for several in grouped.values():
        yield several[0].table, several


def show(found: list[Point]) -> None:
    print("error in per cent, model against published, 1 MiB to 1 GiB; H: held out of the fit\n")
    for table, several in rows(found):
        errors = " ".join(f"{100 * p.error:+4.0f}" for p in several)
        average = 100 * mean([abs(p.error) for p in several])
        mark = "H" if table["held_out"] else " "
        print(
            f"{table['name']:14}{table['hosts']}x{table['gpus_per_host']:<3}{table['kind']:19}"
            f"{table.get('algorithm', ''):5}{mark}{average:5.1f}%  {errors}"
        )
    print()
    for label, errors in summary(found):
        print(f"{label:44}{100 * mean(errors):5.1f}%  ({len(errors)} points)")


def summary(found: list[Point]) -> list[tuple[str, list[float]]]:
    result = [
        ("all-gather, reduce-scatter, all-reduce", main_errors(found)),
        ("  tables of the fit", main_errors(found, False)),
        ("  tables held out", main_errors(found, True)),
    ]
    for kind in (*MAIN, "all-to-all", "collective-permute"):
        of_kind = [p for p in found if p.table["kind"] == kind and "outside" not in p.table]
        result.append((f"  {kind}", [abs(p.error) for p in of_kind]))
    for label, inside in (("  inside a host or rack", True), ("  across hosts", False)):
        there = [p for p in found if (p.table["hosts"] == 1) == inside]
        result.append((label, main_errors(there)))
    result.append(("  large messages, up to 128 hosts", [abs(s.error) for s in scaling(fitted())]))
    outside = [abs(p.error) for p in found if "outside" in p.table]
    result.append(("GPUDirect-TCPXO, which the model doesn't know", outside))
    return result


@dataclass(frozen=True)
class Scaled:
    """One large message over some number of hosts."""

    table: dict[str, Any]
    hosts: int
    published: float
    model: float

    @property
    def error(self) -> float:
        """Of the time, as everywhere here."""
        return self.published / self.model - 1


def scaling(parameters: Parameters, tables: Sequence[dict[str, Any]] | None = None) -> list[Scaled]:
    """Bus bandwidths, as nccl-tests defines them, against published ones."""
    if tables is None:
        tables = json.loads(TABLES.read_text(encoding="utf-8"))["scaling"]
    found = []
    for table in tables:
        for hosts, published in zip(table["hosts"], table["bus_gb_per_s"], strict=True):
            count = hosts * table["gpus_per_host"]
            machine = machine_of({**table, "hosts": hosts})
            group = Group(count, hosts)
            choice = nccl_time(table["kind"], table["bytes"], group, links_of(machine), parameters)
            moved = (count - 1) / count * (2 if table["kind"] == "all-reduce" else 1)
            rate = table["bytes"] * moved / choice.us / 1e3
            found.append(Scaled(table, hosts, published, rate))
    return found


@dataclass(frozen=True)
class Crowding:
    """What one table alone says of `crowding`."""

    table: dict[str, Any]
    exponent: float
    spread: float
    """root mean square of what is left, with the level of the rates left free"""


def crowdings() -> list[Crowding]:
    """The exponent with which each table of several numbers of hosts is described best."""
    data = json.loads(TABLES.read_text(encoding="utf-8"))
    found = []
    for table in data["scaling"]:
        # With two hosts, all-reduces take another algorithm than with more.
        fewest = 4 if table["kind"] == "all-reduce" else 2
        if sum(hosts >= fewest for hosts in table["hosts"]) > 1:
            tried = [_crowding(table, fewest, step / 200) for step in range(-10, 41)]
            found.append(min(tried, key=lambda one: one.spread))
    return found


def _crowding(table: dict[str, Any], fewest: int, exponent: float) -> Crowding:
    parameters = copy.deepcopy(dict(fitted()))
    parameters["network"]["crowding"] = exponent
    rows = [one for one in scaling(parameters, [table]) if one.hosts >= fewest]
    logs = [math.log(one.model / one.published) for one in rows]
    return Crowding(table, exponent, math.sqrt(mean([(x - mean(logs)) ** 2 for x in logs])))


def markdown(found: list[Point]) -> str:
    data = json.loads(TABLES.read_text(encoding="utf-8"))
    lines = [
        "## Collectives against published tables",
        "",
        "Made by `benchmarks/collectives.py --markdown`. The model (`machines/nccl.py`) has a few",
        "parameters for each link and one set for networks, fitted to the tables that are not held",
        "out; the shape of the model was chosen with all tables in view. The error of a point is",
        "|model / published − 1|, sizes are 1 MiB to 1 GiB, doubling.",
        "",
        "| | mean error | points |",
        "| --- | ---: | ---: |",
        *(f"| {label.strip()} | {100 * mean(e):.1f}% | {len(e)} |" for label, e in summary(found)),
        "",
        "Where the tables disagree with each other the model stands between them: 1 GiB",
        "all-reduce on 8 B200 is 3115 µs in XLA's table (a ring) and 2602 µs in the other one",
        "(NVLS). What it is bad at: all-to-all below 8 MiB, GPUDirect-TCPXO, and the steps in",
        "NCCL's curves where it changes protocol at another size than the fastest one.",
        "",
        "| published by | GPUs | collective | fit | mean error | at 1 MiB | 32 MiB | 1 GiB |",
        "| --- | --- | --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for table, several in rows(found):
        by_size = {p.size: p.error for p in several}
        cells = [
            "–" if size not in by_size else f"{100 * by_size[size]:+.0f}%"
            for size in (2**20, 2**25, 2**30)
        ]
        forced = f", {table['algorithm']} forced" if "algorithm" in table else ""
        average = 100 * mean([abs(p.error) for p in several])
        gpus = f"{table['hosts']}×{table['gpus_per_host']}"
        lines.append(
            f"| {table['name']} [{table['source'] + 1}] | {gpus} "
            f"| {table['kind']}{forced} | {'held out' if table['held_out'] else 'fitted'} "
            f"| {average:.1f}% | {' | '.join(cells)} |"
        )
    lines += [
        "",
        "Large messages over many hosts, GB/s on the bus. What each doubling of the hosts costs",
        "(`crowding`, an exponent) was chosen with the first cluster in view, so its errors are",
        "not held out; the others are.",
        "",
        "| published by | hosts × GPUs | collective | size | published | model | error of time |",
        "| --- | --- | --- | --- | ---: | ---: | ---: |",
    ]
    for one in scaling(fitted()):
        rates = f"{one.published:.0f} | {one.model:.0f}"
        lines.append(
            f"| {one.table['name']} [{one.table['source'] + 1}] | {one.hosts}×8 | "
            f"{one.table['kind']} | {one.table['bytes'] >> 30} GiB | {rates} | "
            f"{100 * one.error:+.0f}% |"
        )
    lines += [
        "",
        "`crowding` as each of these tables alone would have it, the level of the rates left free;",
        f"the model has {fitted()['network']['crowding']} for all networks:",
        "",
        "| published by | collective | hosts | crowding | left |",
        "| --- | --- | --- | ---: | ---: |",
    ]
    for each in crowdings():
        table = each.table
        lines.append(
            f"| {table['name']} [{table['source'] + 1}] | {table['kind']} | up to "
            f"{table['hosts'][-1]} | {each.exponent:.3f} | {each.spread:.1%} |"
        )
    lines += ["", "Sources:", ""]
    lines += [f"{number}. {source}" for number, source in enumerate(data["sources"], 1)]
    return "\n".join(lines) + "\n"


def fit() -> dict[str, Any]:
    """Least squares of the logarithms, with outliers damped, from a plausible start."""
    import numpy as np
    from scipy.optimize import least_squares

    start = starting_point()
    paths = list(free(start))
    origin = np.log([value_at(start, path) for path in paths])

    def with_values(values: Any) -> dict[str, Any]:
        found = copy.deepcopy(start)
        for path, value in zip(paths, np.exp(values), strict=True):
            put(found, path, round(float(value), 4))
        return completed(found)

    def residuals(values: Any) -> Any:
        found = points(with_values(values), fitting=True)
        weights = [1.0 if point.table["kind"] in MAIN else 0.5 for point in found]
        logs = [math.log(p.model_us / p.published_us) for p in found]
        return np.array(logs) * np.array(weights)

    done = least_squares(
        residuals, origin, loss="soft_l1", f_scale=0.1, max_nfev=60, diff_step=1e-3,
        bounds=(origin - 1.4, origin + 1.4),
    )  # fmt: skip
    return with_values(done.x)


def starting_point() -> dict[str, Any]:
    nvls_reduce = {
        "least_group": 8, "efficiency": 0.58, "latency_us": 30.0, "hop_us": 3.0,
        "few_channels": 0.5, "few_channels_bytes": 2**26,
    }  # fmt: skip
    nvls_scatter = {
        "least_group": 2, "replaces_ring": True, "efficiency": 0.83, "latency_us": 30.0,
        "hop_us": 2.0, "few_channels": 0.8, "few_channels_bytes": 2**26,
    }  # fmt: skip
    return {
        "links": {
            "nvlink4": link({"all-reduce": nvls_reduce, "reduce-scatter": nvls_scatter}),
            "nvlink5": link(
                {"all-reduce": {**nvls_reduce, "efficiency": 0.48, "few_channels": 0.33}}
            ),
        },
        "network": {
            "efficiency": 0.95,
            "ring_share": 0.88,
            "crowding": 0.05,
            "chain_sends": 3.7,
            "pairs_share": 0.75,
            "Simple": {"latency_us": 60.0, "hops": 3.0, "share": 1.0},
            "LL128": {"latency_us": 20.0, "hops": 2.0, "share": 0.6},
            "LL": {"latency_us": 10.0, "hops": 1.0, "share": 0.2},
        },
    }


def link(nvls: dict[str, Any]) -> dict[str, Any]:
    return {
        "efficiency": 0.8,
        "copies": {"all-gather": 0.4, "all-reduce": 1.0},
        "Simple": {"latency_us": 35.0, "hop_us": 1.5, "share": 1.0},
        "LL128": {"latency_us": 15.0, "hop_us": 1.5, "share": 0.5},
        "LL": {"latency_us": 9.0, "hop_us": 1.0, "share": 0.2},
        "pairs": {
            "efficiency": 0.75, "latency_us": 20.0, "hop_us": 1.0, "few_channels": 0.2,
            "few_channels_bytes": 2**26,
        },
        "nvls": nvls,
    }  # fmt: skip


def completed(found: dict[str, Any]) -> dict[str, Any]:
    """The links that too few tables were published for: A100's and PCIe."""
    older = copy.deepcopy(found["links"]["nvlink4"])
    older.pop("nvls")
    # 8 × A100, all-reduce of 4 GB: 232.5 GB/s on the bus (github.com/NVIDIA/nccl/issues/1048).
    found["links"]["nvlink3"] = {**older, "efficiency": 0.83}
    found["links"]["pcie"] = {**copy.deepcopy(older), "efficiency": 0.7}
    return found


FIXED = (
    "least_group", "replaces_ring", "few_channels_bytes", "chain_sends", "crowding",
)  # fmt: skip


def free(tree: dict[str, Any], before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """What is fitted: all but LL (hardly any published size uses it), and what is known."""
    for key, value in tree.items():
        path = (*before, key)
        if isinstance(value, dict):
            if key != "LL":
                yield from free(value, path)
        elif key not in FIXED and path != ("network", "efficiency") and path[-2:] != (
            "Simple", "share",
        ):  # fmt: skip
            yield path


def value_at(tree: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        tree = tree[key]
    return tree


def put(tree: Any, path: tuple[str, ...], value: float) -> None:
    value_at(tree, path[:-1])[path[-1]] = value


def main(arguments: list[str]) -> int:
    if arguments == ["--fit"]:
        about = {
            "about": "Parameters of machines/nccl.py, written by benchmarks/collectives.py --fit. "
            "Times in microseconds; shares and efficiencies of the published peak; `hops` are "
            "multiples of the network's latency."
        }
        found = fit()
        LINKS.write_text(json.dumps({**about, **found}, indent=1) + "\n", encoding="utf-8")
        show(points(found))
        return 0
    found_points = points(fitted())
    if arguments == ["--markdown"]:
        PAGE.write_text(markdown(found_points), encoding="utf-8")
        print(f"wrote {PAGE.relative_to(ROOT)}")
        return 0
    if arguments:
        print(__doc__, file=sys.stderr)
        return 2
    show(found_points)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
