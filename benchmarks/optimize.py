"""What a call costs once `slipstream.optimize` is settled, against the same function without it.

A trivial step and one of about 10 ms, jitted and compiled ahead of time. Calls of the two are
interleaved in blocks and the medians compared; the time is that of the call alone, which returns
before the device is done on the trivial step and holds the device's time on the other.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import slipstream

GOAL_US = 10.0


def trivial(x: Any) -> Any:
    return x + 1


def heavy(x: Any) -> Any:
    return jax.lax.fori_loop(0, 12, lambda _, y: jnp.tanh(y @ x), x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=60)
    blocks = parser.parse_args().blocks
    print(f"jax {jax.__version__}, {jax.devices()[0].device_kind}")
    print(f"{'step':>26}  {'plain':>11}  {'optimized':>11}  {'overhead':>10}")
    for name, function, x, calls in (
        ("trivial", trivial, jnp.ones(8), 2000),
        ("about 10 ms", heavy, jnp.eye(_size()), 4),
    ):
        for kind in ("jitted", "ahead of time"):
            plain, settled = pair(function, x, kind)
            a, b = timings(plain, settled, x, calls, blocks)
            more = statistics.median(y - x for x, y in zip(a, b, strict=True))
            before, after = statistics.median(a), statistics.median(b)
            print(
                f"{name + ', ' + kind:>26}  {before:8.2f} µs  {after:8.2f} µs  {more:+7.2f} µs"
                f"  ± {error(a, b):.2f}",
                flush=True,
            )
    print(f"the goal is under {GOAL_US:.0f} µs, 0.1% of a 10 ms step; the code that runs is the")
    print("same whatever the step, so the trivial step shows it and the other one shows its noise")


def error(a: list[float], b: list[float]) -> float:
    """Half the width of the middle half of the differences, as an error of their median."""
    differences = sorted(y - x for x, y in zip(a, b, strict=True))
    quarter = len(differences) // 4
    spread = (differences[-1 - quarter] - differences[quarter]) / 2
    return float(1.86 * spread / len(differences) ** 0.5)


def _size() -> int:
    """Of a matrix whose step takes about 10 ms on this device."""
    for size in (128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 2560, 3072, 3584, 4096):
        step, x = jax.jit(heavy), jnp.eye(size)
        if min(_seconds(step, x) for _ in range(8)) > 0.008:
            return size
    return 8192


def _seconds(step: Callable[..., Any], x: Any) -> float:
    begin = time.perf_counter()
    step(x).block_until_ready()
    return time.perf_counter() - begin


def pair(function: Callable[..., Any], x: Any, kind: str) -> tuple[Any, Any]:
    """The function as it is, and one that has settled; each with a program of its own."""
    plain, other = jax.jit(lambda x: function(x)), jax.jit(lambda x: function(x))
    folder = Path(tempfile.mkdtemp())
    if kind == "jitted":
        step = slipstream.optimize(other, folder=folder, start=1, steps=1, rounds=8)
    else:
        plain = plain.lower(x).compile()
        step = slipstream.optimize(other.lower(x), folder=folder, start=1, steps=1, rounds=8)
    while not step.is_settled:
        step(x).block_until_ready()
        time.sleep(0.005)
    step.receipts()
    return plain, step


def timings(
    plain: Callable[..., Any], settled: Callable[..., Any], x: Any, calls: int, blocks: int
) -> tuple[list[float], list[float]]:
    """Microseconds per call, block by block."""
    found: tuple[list[float], list[float]] = ([], [])
    for block in range(blocks):
        order = ((0, plain), (1, settled)) if block % 2 else ((1, settled), (0, plain))
        for index, step in order:
            step(x).block_until_ready()
            begin = time.perf_counter()
            for _ in range(calls):
                result = step(x)
            result.block_until_ready()
            found[index].append((time.perf_counter() - begin) / calls * 1e6)
    return found


if __name__ == "__main__":
    main()
