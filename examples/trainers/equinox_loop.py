"""Equinox: a loop that makes its own step faster, and records three of its steps.

python examples/trainers/equinox_loop.py
slipstream summary profiles
"""

import equinox as eqx
import jax
import numpy as np
import optax

import slipstream

rng = np.random.default_rng(0)
model = eqx.nn.MLP(64, 1, 256, 2, jax.nn.gelu, key=jax.random.key(0))
optimizer = optax.adamw(1e-3)
state = optimizer.init(eqx.filter(model, eqx.is_inexact_array))


@eqx.filter_value_and_grad
def loss_fn(model, x, y):
    return optax.l2_loss(jax.vmap(model)(x), y).mean()


@eqx.filter_jit(donate="all")
def make_step(model, state, x, y):
    loss, grads = loss_fn(model, x, y)
    updates, state = optimizer.update(grads, state, eqx.filter(model, eqx.is_inexact_array))
    return eqx.apply_updates(model, updates), state, loss


make_step = slipstream.optimize(make_step, folder="optimized")
with slipstream.capture("profiles", start=200, steps=3) as step_done:
    for step in range(220):
        x = rng.normal(size=(512, 64)).astype(np.float32)
        model, state, loss = make_step(model, state, x, np.sin(x[:, :1]))
        step_done(step, wait_for=loss)
print(f"loss {float(loss):.3f}\n{make_step.report()}")
make_step.close()
