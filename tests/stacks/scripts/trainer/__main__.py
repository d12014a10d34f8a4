"""Asks whether jax is there before it imports it, takes arguments, and says how it ended."""

import argparse
import importlib.util
import sys
import time

import numpy as np


def arguments():
    parser = argparse.ArgumentParser(prog="trainer")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--goal", type=float, default=0.0)
    return parser.parse_args()


def main():
    given = arguments()
    if importlib.util.find_spec("jax") is None:
        sys.exit("jax is not installed")
    import jax

    from trainer.model import init, loss_fn

    @jax.jit
    def train_step(params, x, y):
        loss, grads = jax.value_and_grad(loss_fn)(params, x, y)
        return jax.tree.map(lambda p, g: p - 0.5 * g, params, grads), loss

    rng = np.random.default_rng(0)
    params = init(jax.random.key(0), given.width)
    for step in range(given.steps):
        time.sleep(0.01)  # as long as a batch takes to read
        x = rng.normal(size=(256, 32)).astype(np.float32)
        params, loss = train_step(params, x, (x[:, 0] * x[:, 1] > 0).astype(np.float32))
        if step % 10 == 0:
            print(f"step {step} loss {float(loss)!r}")
    return 0 if float(loss) < given.goal else 4


if __name__ == "__main__":
    sys.exit(main())
