"""Clock and power of a GPU under work of several kinds, each sustained for seconds: JSON.

    python tests/record/power.py --seconds 6 --output power.json [--only TEXT] [--unlocked]

For the fit of machines/power.json (scripts/fit_power.py).  Each row has the work of one iteration
(FLOPs by type, bytes of memory), iterations a second, and the medians of SM clock, power and
temperature over the second half.  Clocks are then locked, if the driver allows it: time and power
of the same work by clock.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

QUERY = "clocks.sm,power.draw.instant,temperature.gpu,clocks_event_reasons.active"
CALLS = 8
"""between two waits for the GPU, which then has no work for a moment"""
LOCKED_MHZ = (1200, 1400, 1600, 1800, 1980)


class Sampler:
    """What nvidia-smi says, asked again and again, with the time of each answer."""

    def __enter__(self) -> Sampler:
        self.samples: list[tuple[float, list[str]]] = []
        self.done = threading.Event()
        threading.Thread(target=self._ask, daemon=True).start()
        return self

    def _ask(self) -> None:
        command = ["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader,nounits"]
        while not self.done.is_set():
            answer = subprocess.run(command, capture_output=True, text=True).stdout
            self.samples.append((time.monotonic(), [part.strip() for part in answer.split(",")]))

    def __exit__(self, *_: object) -> None:
        self.done.set()

    def between(self, begin: float, end: float) -> dict[str, Any]:
        lines = [parts for at, parts in self.samples if begin <= at <= end and len(parts) == 4]
        if not lines:
            return {"samples": 0}
        median = [statistics.median(float(parts[i]) for parts in lines) for i in range(3)]
        reasons = sorted({parts[3] for parts in lines})
        names = ("clock_mhz", "power_w", "temperature_c")
        return {"samples": len(lines), **dict(zip(names, median, strict=True)), "why": reasons}


VALUES: dict[str, Callable[..., Any]] = {
    "normal": lambda key, shape: jax.random.normal(key, shape, jnp.bfloat16),
    "zeros": lambda key, shape: jnp.zeros(shape, jnp.bfloat16),
    # All tokens the same, as in MaxText's synthetic data.
    "equal tokens": lambda key, shape: jax.random.normal(key, shape, jnp.bfloat16),
    # What XLA's hlo_runner fills arguments with (PopulateWithRandomFloatingPointData).
    "made up": lambda key, shape: jax.random.uniform(key, shape, jnp.bfloat16, -0.1, 0.2),
}
"""power depends on the values too: bits that don't change cost nothing"""


def product(m: int, n: int, k: int, dtype: str, data: str = "normal") -> dict[str, Any]:
    kind = getattr(jnp, dtype)
    keys = jax.random.split(jax.random.key(0))
    shapes = ((m, k), (n, k)) if dtype.startswith("float8") else ((m, k), (k, n))
    a, b = (VALUES[data](key, shape).astype(kind) for key, shape in zip(keys, shapes, strict=True))
    contract = ((1,), (1 if dtype.startswith("float8") else 0,))
    result = jnp.bfloat16 if dtype.startswith("float8") else kind

    def multiply(x: Any, y: Any) -> Any:
        return jax.lax.dot_general(x, y, (contract, ((), ())), preferred_element_type=result)

    size = jnp.dtype(kind).itemsize
    return {
        "name": f"{m}x{n}x{k} {dtype} {data}",
        "flops": {dtype: 2 * m * n * k},
        "bytes": (m * k + n * k) * size + m * n * jnp.dtype(result).itemsize,
        "run": jax.jit(multiply),
        "arguments": (a, b),
    }


def sweep(gigabytes: float) -> dict[str, Any]:
    x = jax.random.normal(jax.random.key(1), (int(gigabytes * 2.5e8),), jnp.float32)
    run = jax.jit(lambda v: v * 1.0001 + 0.5)
    return {
        "name": f"read and write {gigabytes:g} GB",
        "flops": {},
        "bytes": 2 * x.nbytes,
        "run": run,
        "arguments": (x,),
    }


def mixture(products: int, sweeps: int) -> dict[str, Any]:
    """Products and sweeps in turns, as in a training step."""
    one, other = product(8192, 8192, 8192, "bfloat16"), sweep(1.0)

    def run(a: Any, b: Any, x: Any) -> Any:
        for _ in range(products):
            one["run"](a, b)
        for _ in range(sweeps):
            last = other["run"](x)
        return last

    return {
        "name": f"{products} products, {sweeps} sweeps",
        "flops": {"bfloat16": products * one["flops"]["bfloat16"]},
        "bytes": products * one["bytes"] + sweeps * other["bytes"],
        "run": run,
        "arguments": (*one["arguments"], *other["arguments"]),
    }


def attention(tokens: int) -> dict[str, Any]:
    shape = (16384 // tokens * 2, tokens, 16, 128)
    q, k, v = (
        jax.random.normal(key, shape, jnp.bfloat16)
        for key in jax.random.split(jax.random.key(2), 3)
    )

    def loss(q: Any, k: Any, v: Any) -> Any:
        out = jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation="cudnn")
        return jnp.sum(out.astype(jnp.float32) ** 2)

    # Two products forward and five backward, half of each for a causal mask.
    flops = 7 * shape[0] * shape[2] * tokens * tokens * shape[3]
    run = jax.jit(jax.grad(loss, (0, 1, 2)))
    return {
        "name": f"cuDNN attention, {tokens} tokens",
        "flops": {"bfloat16": flops},
        "bytes": 10 * q.nbytes,
        "run": run,
        "arguments": (q, k, v),
    }


def llama(data: str, tokens: int = 8192, batch: int = 2, layers: int = 2) -> dict[str, Any]:
    """Gradients of layers of an 8B model; weights as in training, or made up."""
    width, hidden, heads, groups, head = 4096, 14336, 32, 8, 128
    shapes = {
        "q": (width, heads * head),
        "k": (width, groups * head),
        "v": (width, groups * head),
        "out": (heads * head, width),
        "gate": (width, hidden),
        "up": (width, hidden),
        "down": (hidden, width),
        "before": (width,),
        "after": (width,),
    }
    keys = jax.random.split(jax.random.key(3), layers * len(shapes) + 1)
    made_up = data == "made up"

    def weight(key: Any, name: str, shape: tuple[int, ...]) -> Any:
        if made_up:
            return VALUES[data](key, shape)
        return 0.02 * VALUES[data](key, shape) if len(shape) == 2 else jnp.ones(shape, jnp.bfloat16)

    names = [(layer, name) for layer in range(layers) for name in shapes]
    params = {
        (layer, name): weight(key, name, shapes[name])
        for key, (layer, name) in zip(keys, names, strict=False)
    }
    x = VALUES[data](keys[-1], (batch, 1 if data == "equal tokens" else tokens, width))
    x = jnp.broadcast_to(x, (batch, tokens, width))

    def normed(h: Any, scale: Any) -> Any:
        h = h.astype(jnp.float32)
        mean = jnp.mean(h * h, -1, keepdims=True)
        return (h * jax.lax.rsqrt(mean + 1e-5)).astype(jnp.bfloat16) * scale

    def block(h: Any, p: dict[str, Any]) -> Any:
        y = normed(h, p["before"])
        q, k, v = (
            (y @ p[name]).reshape(batch, tokens, count, head)
            for name, count in (("q", heads), ("k", groups), ("v", groups))
        )
        a = jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation="cudnn")
        h = h + a.reshape(h.shape) @ p["out"]
        y = normed(h, p["after"])
        return h + (jax.nn.silu(y @ p["gate"]) * (y @ p["up"])) @ p["down"]

    def loss(params: Any, x: Any) -> Any:
        for layer in range(layers):
            x = block(x, {name: params[layer, name] for name in shapes})
        return jnp.mean(jnp.square(normed(x, params[0, "after"]).astype(jnp.float32)))

    weights = sum(math.prod(shape) for shape in shapes.values() if len(shape) == 2)
    products = 6 * batch * tokens * weights * layers
    return {
        "name": f"{layers} layers of Llama 8B, {data}",
        "flops": {"bfloat16": products, "attention": 7 * batch * heads * tokens**2 * head * layers},
        "bytes": 0,
        "run": jax.jit(jax.grad(loss)),
        "arguments": (params, x),
    }


WORK: tuple[Callable[[], dict[str, Any]], ...] = (
    lambda: product(8192, 8192, 8192, "bfloat16"),
    lambda: product(8192, 8192, 8192, "bfloat16", "zeros"),
    lambda: product(16384, 28672, 8192, "bfloat16"),
    lambda: product(4096, 4096, 4096, "bfloat16"),
    lambda: product(2048, 2048, 2048, "bfloat16"),
    lambda: product(16384, 1024, 8192, "bfloat16"),
    lambda: product(8192, 8192, 8192, "float16"),
    lambda: product(8192, 8192, 8192, "float32"),
    lambda: product(8192, 8192, 8192, "float8_e4m3fn"),
    lambda: product(16384, 28672, 8192, "float8_e4m3fn"),
    lambda: product(8192, 8192, 8192, "float8_e4m3fn", "zeros"),
    lambda: sweep(2.0),
    lambda: sweep(0.02),
    lambda: mixture(4, 1),
    lambda: mixture(2, 2),
    lambda: mixture(1, 4),
    lambda: attention(2048),
    lambda: attention(8192),
    lambda: product(8192, 8192, 8192, "bfloat16", "made up"),
    lambda: product(8192, 8192, 8192, "float8_e4m3fn", "made up"),
    lambda: llama("normal"),
    lambda: llama("made up"),
    lambda: llama("made up", batch=1, layers=8),
    lambda: llama("equal tokens"),
)


def sustain(work: dict[str, Any], seconds: float, sampler: Sampler) -> dict[str, Any]:
    run, arguments = work["run"], work["arguments"]
    jax.block_until_ready(run(*arguments))
    begin = half = time.monotonic()
    done = counted = 0
    while (now := time.monotonic()) < begin + seconds:
        if half == begin and now > begin + seconds / 2:
            half, counted = now, done
        for _ in range(CALLS):
            last = run(*arguments)
        jax.block_until_ready(last)
        done += CALLS
    end = time.monotonic()
    facts = {key: work[key] for key in ("name", "flops", "bytes")}
    rate = (done - counted) / (end - half)
    found = {**facts, "per_second": rate, **sampler.between(half, end)}
    tera = rate * sum(work["flops"].values()) / 1e12
    print(
        f"{work['name']:36} {tera:7.1f} TFLOP/s {rate * work['bytes'] / 1e12:6.2f} TB/s "
        f"{found.get('clock_mhz')} MHz {found.get('power_w')} W {found.get('why')}",
        flush=True,
    )
    return found


def locked(sampler: Sampler, seconds: float) -> list[dict[str, Any]]:
    """The same work at several clocks; empty if the driver refuses to lock them."""
    found = []
    for clock in LOCKED_MHZ:
        command = ["nvidia-smi", f"--lock-gpu-clocks={clock},{clock}"]
        if subprocess.run(command, capture_output=True).returncode:
            print("clocks can't be locked here")
            break
        for work in (WORK[0](), WORK[8](), WORK[11]()):
            found.append({**sustain(work, seconds, sampler), "locked_mhz": clock})
    subprocess.run(["nvidia-smi", "--reset-gpu-clocks"], capture_output=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--output", default="power.json")
    parser.add_argument("--only", default="", help="work whose name contains one of A,B,…")
    parser.add_argument("--unlocked", action="store_true", help="leave the clocks alone")
    options = parser.parse_args()
    with Sampler() as sampler:
        time.sleep(2.0)
        idle = sampler.between(0.0, time.monotonic())
        works = (make() for make in WORK)
        rows = [
            sustain(work, options.seconds, sampler)
            for work in works
            if any(word in work["name"] for word in options.only.split(","))
        ]
        by_clock = [] if options.unlocked else locked(sampler, options.seconds / 2)
    facts = {"device": jax.devices()[0].device_kind, "jax": jax.__version__, "idle": idle}
    data = {**facts, "rows": rows, "locked": by_clock}
    Path(options.output).write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    main()
