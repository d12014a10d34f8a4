"""Optax: a loop that makes its own step faster, and records three of its steps.

python examples/trainers/optax_loop.py
slipstream summary profiles
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax

import slipstream

rng = np.random.default_rng(0)
params = {"hidden": rng.normal(size=(64, 256)) / 8, "out": rng.normal(size=(256, 1)) / 16}
params = jax.tree.map(lambda array: jnp.asarray(array, jnp.float32), params)
optimizer = optax.adamw(1e-3)
state = optimizer.init(params)


def loss_fn(params, x, y):
    return optax.l2_loss(jax.nn.gelu(x @ params["hidden"]) @ params["out"], y).mean()


@jax.jit
def train_step(params, state, x, y):
    loss, grads = jax.value_and_grad(loss_fn)(params, x, y)
    updates, state = optimizer.update(grads, state, params)
    return optax.apply_updates(params, updates), state, loss


train_step = slipstream.optimize(train_step, folder="optimized")
with slipstream.capture("profiles", start=200, steps=3) as step_done:
    for step in range(220):
        x = rng.normal(size=(512, 64)).astype(np.float32)
        params, state, loss = train_step(params, state, x, np.sin(x[:, :1]))
        step_done(step, wait_for=loss)
print(f"loss {float(loss):.3f}\n{train_step.report()}")
train_step.close()
