"""On a GPU: the autotuned time of products by Triton and by cuBLAS, and the tiles: JSON.

    python tests/record/triton_tiles.py OUT.json [--tiny]

About forty products of several shapes and types go into one program for each of three settings:
Triton alone, cuBLAS alone, and the autotuner's own choice. Each program is compiled once, with
autotuning, and profiled. It takes about two minutes on an H200. `fusions.UNTUNED` and
`kernel_model._matmul_us` rest on such a comparison.
"""

import argparse
import json
import math
import re
import time

import jax
import numpy as np
import record_kernels as kernels
from record_kernels import BATCHED, BF16, F8, F16, F32, LABELLED, LARGE, Group, gemms

SETTINGS = {
    "triton": ({"xla_gpu_experimental_autotune_backends": "TRITON"}, kernels.TRITON),
    "cublas": (kernels.CUBLAS,),
    "chosen": ({},),
}
"""compiler options by setting; the second is taken by a jaxlib that lacks the first"""


def products(setting):
    """(group, options): every product of one setting."""
    group = Group(setting)
    gemms(group, BF16, [*LARGE[:14], (8192, 28672, 8192, ""), (16384, 50304, 1536, "")])
    gemms(group, BF16, BATCHED)
    gemms(group, F32, LARGE[4:12:2])
    gemms(group, F16, LARGE[:4:3])
    gemms(group, F8, [LARGE[0], LARGE[6], LARGE[10]], BF16)
    around = kernels.around_gemms()
    group.functions += around.functions[:10]
    group.inputs += around.inputs[:10]
    return group


def compiled(group, choices):
    def everything(inputs):
        return [f(*args) for f, args in zip(group.functions, inputs, strict=True)]

    lowered = jax.jit(everything).lower(group.inputs)
    if jax.default_backend() != "gpu":
        return lowered.compile(), {}
    for number, options in enumerate(choices):
        try:
            return lowered.compile(compiler_options={**LABELLED, **options}), options
        except Exception as error:  # an option that this jaxlib doesn't know
            if number + 1 == len(choices):
                raise
            print(options, "is refused:", str(error)[:200], flush=True)
    raise AssertionError("unreachable")


def measured(setting, is_tiny):
    group = products(setting)
    if is_tiny:
        group = kernels.small(group)
    begin = time.perf_counter()
    program, options = compiled(group, SETTINGS[setting])
    seconds = time.perf_counter() - begin
    inputs = kernels.values(group.inputs)
    warm = time.perf_counter()
    while time.perf_counter() - warm < 1:
        jax.block_until_ready(program(inputs))
    data = kernels.profiled(lambda: jax.block_until_ready(program(inputs)), kernels.RUNS)
    rows = list(described(data, program.as_text()))
    print(f"{setting}: compiled in {seconds:.0f} s, {len(rows)} products", flush=True)
    return {"options": options, "compile_s": round(seconds, 1), "products": rows}


def described(data, text):
    """Each product of a profiled program: its GEMM, its kernel, its tile and its time."""
    from slipstream.machines.fusions import _tile
    from slipstream.machines.kernel_features import kernel_features
    from slipstream.sources.hlo.reader import program_from_text

    program, times = program_from_text(text), kernels._measured(kernels._loaded(data))
    for name, us in times.items():
        if name not in program:
            continue
        instruction = program.instruction(name)
        features = kernel_features(program, instruction)
        gemm = features.gemm
        if features.kind != "gemm" or gemm is None:
            continue
        config = instruction.backend_config
        stages = re.search(r'"num_stages":"?(\d+)', config)
        yield {
            "gemm": [gemm.batch, gemm.m, gemm.n, gemm.k, gemm.dtype],
            "fused_operations": round(features.operations / (gemm.batch * gemm.m * gemm.n), 2),
            "kernel": "triton" if features.is_triton else instruction.custom_call_target,
            "tile": _tile(instruction)[0] if features.is_triton else None,
            "warps": _tile(instruction)[1] // 32 if features.is_triton else None,
            "stages": int(stages[1]) if stages else None,
            "us": us,
            "tflops": round(gemm.flops / us / 1e6, 1),
        }


def compare(found):
    """Print Triton over cuBLAS by product, and its mean and spread."""
    by = {
        setting: {tuple(row["gemm"]): row["us"] for row in each["products"]}
        for setting, each in found["settings"].items()
    }
    logs = []
    for key, us in by.get("triton", {}).items():
        if other := by.get("cublas", {}).get(key):
            logs.append(math.log(us / other))
            chosen = by.get("chosen", {}).get(key, float("nan"))
            print(f"{key!s:44s} triton {us:9.1f} cublas {other:9.1f} chosen {chosen:9.1f} us")
    if logs:
        mean, spread = math.exp(np.mean(logs)), np.std(logs)
        print(f"Triton over cuBLAS: {mean:.3f}, spread {spread:.3f}, {len(logs)} products")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out")
    parser.add_argument("--tiny", action="store_true", help="small sizes, to try the script")
    options = parser.parse_args()
    found = {"device": jax.devices()[0].device_kind, "jax": jax.__version__, "settings": {}}
    for setting in SETTINGS:
        try:
            found["settings"][setting] = measured(setting, options.tiny)
        except Exception as error:  # the other settings are worth recording all the same
            print(setting, "failed:", str(error)[:500], flush=True)
        with open(options.out, "w") as file:
            json.dump(found, file, indent=1)
    compare(found)


if __name__ == "__main__":
    main()
