"""Checkpoints by Orbax every so often; a run starts from the newest one that it finds."""

import argparse
import os

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp

BATCH, WIDTH, EVERY = 128, 128, 200


def loss_fn(params, x, y):
    return jnp.mean((jnp.tanh(jnp.tanh(x @ params["in"]) @ params["mid"]) @ params["out"] - y) ** 2)


def main(steps):
    rng = np.random.default_rng(0)
    optimizer = optax.sgd(0.05, momentum=0.9)
    params = {
        "in": jnp.asarray(rng.normal(size=(16, WIDTH)), jnp.float32) / 4,
        "mid": jnp.asarray(rng.normal(size=(WIDTH, WIDTH)), jnp.float32) * WIDTH**-0.5,
        "out": jnp.asarray(rng.normal(size=(WIDTH, 1)), jnp.float32) * WIDTH**-0.5,
    }
    state = {"params": params, "optimizer": optimizer.init(params)}

    @jax.jit
    def train_step(state, x, y):
        loss, grads = jax.value_and_grad(loss_fn)(state["params"], x, y)
        updates, optimizer_state = optimizer.update(grads, state["optimizer"])
        params = optax.apply_updates(state["params"], updates)
        return {"params": params, "optimizer": optimizer_state}, loss

    options = ocp.CheckpointManagerOptions(max_to_keep=3, save_interval_steps=EVERY)
    with ocp.CheckpointManager(os.path.abspath("checkpoints"), options=options) as manager:
        first = 0
        if (newest := manager.latest_step()) is not None:
            state = manager.restore(newest, args=ocp.args.StandardRestore(state))
            first = newest + 1
        print(f"starting at step {first}")
        for step in range(first, steps):
            x = np.random.default_rng(step).normal(size=(BATCH, 16)).astype(np.float32)
            state, loss = train_step(state, x, np.sin(x[:, :1]))
            manager.save(step, args=ocp.args.StandardSave(state))
            if step % 10 == 0:
                print(f"step {step} loss {float(loss)!r}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, required=True)
    main(parser.parse_args().steps)
