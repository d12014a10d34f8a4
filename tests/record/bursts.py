"""Do waits leave power to the kernels between them?  Bursts of products with pauses: TFLOP/s.

    python tests/record/bursts.py            a minute and a half on one GPU

For `peak` in machines/power.json; the rows are in tests/data/accuracy/bursts.json.
"""

import time

import jax
import jax.numpy as jnp

N = 8192
PAUSES_MS = (0, 2, 5, 10, 25, 50, 100)
SETTLE_S, TIMED_S = 1.5, 2.5


def products(count):
    """A compiled function of so many products in a row."""

    @jax.jit
    def run(a, b):
        return jax.lax.fori_loop(0, count, lambda _, x: (x @ b) * jnp.bfloat16(0.01), a)

    return run


def burst_s(run, a, b, pause_ms):
    """The mean time of a burst, once clock and temperature have settled."""
    begin, busy, bursts = time.monotonic(), 0.0, 0
    while (now := time.monotonic() - begin) < SETTLE_S + TIMED_S:
        launched = time.perf_counter()
        run(a, b).block_until_ready()
        if now > SETTLE_S:
            busy += time.perf_counter() - launched
            bursts += 1
        time.sleep(pause_ms / 1e3)
    return busy / bursts


def main():
    a, b = (jax.random.normal(jax.random.key(i), (N, N), jnp.bfloat16) for i in (0, 1))
    for count in (12, 36, 120):  # about 20, 60 and 200 ms
        run = products(count)
        run(a, b).block_until_ready()
        for pause in PAUSES_MS:
            took = burst_s(run, a, b, pause)
            rate = 2 * N**3 * count / took / 1e12
            print(f"[{took * 1e3:.1f}, {pause}, {rate:.1f}],", flush=True)


if __name__ == "__main__":
    main()
