"""A recurrent network in Haiku: `hk.transform_with_state`, an LSTM, averaged weights."""

import argparse
import pickle
from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax

BATCH, TIME, WIDTH = 32, 24, 64


class TrainingState(NamedTuple):
    params: hk.Params
    average: hk.Params
    network: hk.State
    optimizer: optax.OptState


def forward(x, is_training):
    """x: [time, batch, features]"""
    x = hk.BatchNorm(True, True, 0.99)(x, is_training)
    core = hk.LSTM(WIDTH)
    hidden, _ = hk.dynamic_unroll(core, x, core.initial_state(x.shape[1]))
    return hk.nets.MLP([WIDTH, 1])(hidden)


network = hk.transform_with_state(forward)
optimizer = optax.adam(3e-3)


def loss_fn(params, state, x, y):
    predicted, state = network.apply(params, state, None, x, True)
    return jnp.mean((predicted - y) ** 2), state


@jax.jit
def update(state, x, y):
    (loss, network_state), grads = jax.value_and_grad(loss_fn, has_aux=True)(
        state.params, state.network, x, y
    )
    updates, optimizer_state = optimizer.update(grads, state.optimizer)
    params = optax.apply_updates(state.params, updates)
    average = optax.incremental_update(params, state.average, 0.01)
    return TrainingState(params, average, network_state, optimizer_state), loss


@jax.jit
def evaluate(state, x, y):
    predicted, _ = network.apply(state.average, state.network, None, x, False)
    return jnp.mean((predicted - y) ** 2)


def waves(rng):
    phase, rate = rng.uniform(0, 6, (1, BATCH, 1)), rng.uniform(0.1, 0.5, (1, BATCH, 1))
    at = phase + rate * np.arange(TIME + 1)[:, None, None]
    wave = np.sin(at).astype(np.float32)
    return wave[:-1], wave[1:]


def main(steps):
    rng = np.random.default_rng(0)
    params, network_state = network.init(jax.random.PRNGKey(0), waves(rng)[0], True)
    state = TrainingState(params, params, network_state, optimizer.init(params))
    held_out = waves(rng)
    for step in range(steps):
        state, loss = update(state, *waves(rng))
        if step % 50 == 0:
            print(f"step {step} held-out loss {float(evaluate(state, *held_out))!r}")
        if step % 10 == 0:
            print(f"step {step} loss {float(loss)!r}")
    with open("params.pickle", "wb") as file:
        pickle.dump(jax.tree.map(np.asarray, state.params), file)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, required=True)
    main(parser.parse_args().steps)
