"""Fit the shares in machines/kernels.json to recorded kernels, and say how far they are off.

    python scripts/fit_kernels.py [--write] [--only rows]

The recordings are tests/data/accuracy/kernels.json.gz, made by tests/record/record_kernels.py on an
H200, and variant_kernels.json.gz beside it, kernels of eight training steps and of XLA's attention
(tests/record/variants.py --kernels). First a fifth of the kernels, chosen by name, is left out of
the fit and only measured against; what is written is then fitted to all of them. With --only, the
parameters of other kinds of kernels stay as they are.
The power cap had lowered the clock while products were recorded (CLOCKS); rates are of the clock.
Models' recordings take no part: they are the test (benchmarks/accuracy.py). The exception is one
thing that none of those kernels does (see SELDOM): it is read off three recordings that are
not among the models of the test.
"""

from __future__ import annotations

import argparse
import copy
import gzip
import json
import math
import tempfile
import zlib
from collections import defaultdict
from pathlib import Path

from slipstream.machines.gpus import gpus
from slipstream.machines.kernel_features import kernel_features
from slipstream.machines.kernel_model import kernel_us
from slipstream.simulate.recorded import costs_of, hottest_program
from slipstream.sources.hlo.reader import read_program
from slipstream.sources.load import load

REPOSITORY = Path(__file__).resolve().parent.parent
RECORDING = REPOSITORY / "tests/data/accuracy/kernels.json.gz"
VARIANTS = REPOSITORY / "tests/data/accuracy/variant_kernels.json.gz"
CLOCKS = json.loads((REPOSITORY / "tests/data/accuracy/clocks.json").read_text())["clock_hz"]
PARAMETERS = REPOSITORY / "src/slipstream/machines/kernels.json"
STEPS = (1.3, 1.1, 1.03, 1.01)
SWEEPS = 10
# Copied where it is used: values that start equal are fitted apart.
FUSION = {"latency_us": 1.5, "memory": 0.85, "overlap": 4.0}
FLASH = {
    **{"latency_us": 8.0, "share": 0.8, "exponentials": 8.0, "memory": 0.9, "ramp": 150.0},
    **{"diagonal": 0.05, "block": 100.0},
}
# Round guesses, from which every fit begins: were it the last result, what is left out would
# have been seen.
START = {
    "arithmetic": {"elements": 60.0, "operations": 128.0, "transcendentals": 16.0},
    "loop": {**FUSION, "elements": 3.0},
    "copy": {**FUSION, "elements": 6.0},
    "reduce": {**FUSION},
    "columns": {**FUSION},
    "rows": {
        **FUSION,
        **{"registers": 500.0, "spilling": 1.5, "apart": 0.4, "scattered": 0.5, "waiting": 2.0},
    },
    "transpose": {**FUSION, "elements": 0.6, "moved": 6.0},
    "strided": {**FUSION, "elements": 0.6},
    "scatter": {**FUSION, "elements": {"full": 2.0, "half": 0.5, "single": 0.4}},
    "sort": {**FUSION, "memory": 0.06},
    "gemm": {
        "latency_us": 2.0,
        "memory": 0.9,
        "overlap": 2.0,
        "depth": 64.0,
        "raggedness": 0.5,
        "efficiency": dict.fromkeys(("bf16", "f16", "tf32", "f8", "f32", "f64", "s8"), 0.8),
        "shallow_tf32": {"one": 0.9, "both": 0.6},
        "triton": 0.97,
        "fused": 0.5,
        "bursts": 0.3,
        "added": 0.9,
        "tile": {"256x128": 1.0, "128x128": 0.9, "128x64": 0.7, "64x64": 0.5},
    },
    "convolution": {
        "latency_us": 4.0,
        "memory": 0.85,
        "overlap": 2.0,
        "share": 0.8,
        "plain": {"forward": 0.5, "filter": 0.5, "input": 0.25},
    },
    "attention": {
        "forward": {**FLASH},
        "backward": {**FLASH, "share": 0.6, "exponentials": 4.0, "block": 200.0},
    },
}
SHARED = {
    "arithmetic": ("loop", "reduce", "columns", "rows", "gemm"),
    "gemm": ("gemm", "convolution"),
}
"""kinds of kernels that a group of parameters matters to, besides its own"""
FIXED = ("launch", "host_copy")
"""read off the recording, not fitted"""
OTHERS = ("single", "off_default", "accuracy/gpt_fsdp.default")
"""recordings of steps, each of another model than those of benchmarks/accuracy_parts/models.py"""
SELDOM = {("transpose", "elements"): "strided"}
"""parameters that are fitted to those, and the field of a kernel that says it is concerned"""


STEPS_OF = ("gpt", "moe", "llama")
"""groups that are training steps"""
ATTENTION_MEMORY = 0.6
"""least share of the memory's bandwidth: lower ones fit an H200 as well, and are wrong for a GPU
with less bandwidth"""
SELDOM_SHARE = 0.88
"""of the highest clock, in those recordings: what training steps usually run at"""


def samples(recording, gpu):
    """(kind, its features, microseconds, whether it is left out, its GPU) of every kernel."""
    seen = set()
    for group in recording["groups"]:
        clock = next((CLOCKS[key] for key in CLOCKS if group["name"].startswith(key)), None)
        clocked = gpu.at(clock / gpu.clock_hz if clock else 1.0)
        with tempfile.NamedTemporaryFile("w", suffix=".hlo") as file:
            file.write(group["hlo"])
            file.flush()
            program = read_program(file.name)
        for name, us in group["us"].items():
            if name in program:
                features = kernel_features(program, program.instruction(name))
                if features in seen and group["name"].startswith(STEPS_OF):
                    continue  # layers, and models of one size, have the same kernels
                seen.add(features)
                held = zlib.crc32(f"{group['name']}/{name}".encode()) % 5 == 0
                yield features.kind, features, us, held, clocked


def seldom(gpu):
    """The same of kernels in the other recordings that do what no recorded kernel does."""
    for name in OTHERS:
        profile = load(REPOSITORY / f"tests/data/{name}.xplane.pb.gz")
        program = hottest_program(profile)
        for cost in costs_of(profile).costs.of(program.fingerprint).values():
            features = kernel_features(program, program.instruction(cost.name))
            if features.strided:
                yield features.kind, features, cost.us, False, gpu.at(SELDOM_SHARE)


def read_off(recording, parameters, gpu):
    """Copies to and from the host, which need no fit."""
    small, large = recording["copies"][0], recording["copies"][-1]
    us = [sum(each["us"].values()) / len(each["us"]) for each in (small, large)]
    rate = large["bytes"] / us[1]
    made = copy.deepcopy(parameters)
    made["host_copy"] = {
        "latency_us": us[0] - small["bytes"] / rate,
        "share": rate * 1e6 / gpu.host_bandwidth,
    }
    return made


def leaves(tree, path=()):
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key)


def at(tree, path):
    for key in path:
        tree = tree[key]
    return tree


def changed(tree, path, value):
    made = copy.deepcopy(tree)
    at(made, path[:-1])[path[-1]] = value
    return made


def loss(chosen, parameters):
    """Mean absolute logarithm of modelled over measured; long kernels count more than short."""
    total = weight = 0.0
    for _, features, us, _, gpu in chosen:
        w = min(1.0, us / 20) ** 0.5
        off = abs(math.log(max(kernel_us(features, gpu, parameters), 1e-3) / us))
        # One kernel that a library does badly must not bend the curve for all others.
        total += w * (min(off, 1.0) + 0.1 * off)
        weight += w
    return total / max(weight, 1e-9)


def fitted(chosen, parameters, only=""):
    by_kind = defaultdict(list)
    for sample in chosen:
        by_kind[sample[0]].append(sample)
    for _ in range(SWEEPS):
        for path in leaves(parameters):
            if path[0] in FIXED or path in SELDOM or only not in ("", path[0]):
                continue
            some = [s for kind in SHARED.get(path[0], (path[0],)) for s in by_kind[kind]]
            if not some:
                continue
            best = loss(some, parameters)
            for step in STEPS:
                for factor in (step, 1 / step):
                    value = at(parameters, path) * factor
                    if (
                        path[-1] in ("memory", "share", "triton", "raggedness", "256x128")
                        and value > 1
                    ):
                        continue
                    if path[0] == "attention" and path[-1] == "memory" and value < ATTENTION_MEMORY:
                        continue
                    tried = changed(parameters, path, value)
                    if (now := loss(some, tried)) < best - 1e-6:
                        best, parameters = now, tried
    return parameters


def with_seldom(parameters, gpu):
    """The parameters of SELDOM; each kernel counts once, however long it is and often it comes."""
    chosen = list(seldom(gpu))
    for path, field in SELDOM.items():
        kernels = {}
        for _, features, us, _, _ in chosen:
            if getattr(features, field):
                kernels.setdefault(features, []).append(us)
        best = (math.inf, 0.0)
        for value in (round(0.01 * step, 2) for step in range(1, 200)):
            tried = changed(parameters, path, value)
            off = [
                abs(math.log(kernel_us(features, gpu.at(SELDOM_SHARE), tried) * len(us) / sum(us)))
                for features, us in kernels.items()
            ]
            best = min(best, (sum(off) / len(off), value))
        print(f"{'.'.join(path)} {best[1]} from {len(kernels)} kernels, {best[0]:.1%} off")
        parameters = changed(parameters, path, best[1])
    return parameters


def table(chosen, parameters):
    """Mean error of a kernel, and the error of the sum, by kind."""
    by_kind = defaultdict(list)
    for kind, features, us, _, gpu in chosen:
        by_kind[kind].append((kernel_us(features, gpu, parameters), us))
    found = {}
    for kind, pairs in sorted(by_kind.items()):
        mean = sum(abs(a - b) / b for a, b in pairs) / len(pairs)
        both = [sum(column) for column in zip(*pairs, strict=True)]
        weighted = sum(abs(a - b) for a, b in pairs) / both[1]
        found[kind] = (len(pairs), mean, weighted, both[0] / both[1] - 1)
    return found


def rounded(tree):
    return {
        key: rounded(value) if isinstance(value, dict) else float(f"{value:.3g}")
        for key, value in tree.items()
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write kernels.json")
    parser.add_argument("--only", default="", help="fit this kind of kernels only")
    options = parser.parse_args()
    recording = json.loads(gzip.decompress(RECORDING.read_bytes()))
    gpu = gpus()["H200"]
    variants = json.loads(gzip.decompress(VARIANTS.read_bytes()))
    everything = [*samples(recording, gpu), *samples(variants, gpu)]
    used = [s for s in everything if not s[3]]
    held = [s for s in everything if s[3]]
    start = read_off(recording, START, gpu)
    errors = {}
    if options.only:
        last = json.loads(PARAMETERS.read_text())
        errors = last["held_out_error"]
        start = last["parameters"] | {options.only: START[options.only]}
    parameters = fitted(used, start, options.only)
    print(f"{'kind':12s} {'kernels':>8s} {'mean error':>11s} {'by time':>8s} {'sum':>7s}")
    for title, chosen in (("fitted on", used), ("left out", held)):
        print(title)
        for kind, (count, mean, weighted, total) in table(chosen, parameters).items():
            print(f"{kind:12s} {count:8d} {mean:11.1%} {weighted:8.1%} {total:+7.1%}")
            if title == "left out" and options.only in ("", kind):
                errors[kind] = round(weighted, 3)
    parameters = rounded(fitted(everything, start, options.only))
    parameters = parameters if options.only else with_seldom(parameters, gpu)
    print("fitted on all, as written")
    for kind, (count, mean, weighted, total) in table(everything, parameters).items():
        print(f"{kind:12s} {count:8d} {mean:11.1%} {weighted:8.1%} {total:+7.1%}")
    if options.write:
        about = (
            "Shares of a GPU's published rates, at its clock, that its kernels reach, and fixed "
            "times; rates of `arithmetic`, `elements` and `exponentials` are per core and clock. "
            f"Fitted by scripts/fit_kernels.py to {len(everything)} kernels recorded on an "
            f"{recording['device']} with jax {recording['jax']} "
            "(tests/data/accuracy/kernels.json.gz, variant_kernels.json.gz); "
            f"{' and '.join('.'.join(path) for path in SELDOM)} to kernels in recordings of other "
            f"steps ({', '.join(OTHERS)})."
        )
        data = {"about": about, "held_out_error": errors, "parameters": parameters}
        PARAMETERS.write_text(json.dumps(data, indent=2) + "\n")


if __name__ == "__main__":
    main()
