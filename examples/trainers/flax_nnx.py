"""Flax NNX: a loop that makes its own step faster, and records three of its steps.

python examples/trainers/flax_nnx.py
slipstream summary profiles
"""

import jax
import numpy as np
import optax
from flax import nnx

import slipstream


class Model(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.hidden = nnx.Linear(64, 256, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)
        self.out = nnx.Linear(256, 1, rngs=rngs)

    def __call__(self, x):
        return self.out(self.dropout(jax.nn.gelu(self.hidden(x))))


@nnx.jit
def train_step(model, optimizer, x, y):
    loss, grads = nnx.value_and_grad(lambda model: optax.l2_loss(model(x), y).mean())(model)
    optimizer.update(model, grads)
    return loss


rng = np.random.default_rng(0)
model = Model(nnx.Rngs(0))
optimizer = nnx.Optimizer(model, optax.adamw(1e-3), wrt=nnx.Param)

train_step = slipstream.optimize(train_step, folder="optimized")
with slipstream.capture("profiles", start=200, steps=3) as step_done:
    for step in range(220):
        x = rng.normal(size=(512, 64)).astype(np.float32)
        loss = train_step(model, optimizer, x, np.sin(x[:, :1]))
        step_done(step, wait_for=loss)
print(f"loss {float(loss):.3f}\n{train_step.report()}")
train_step.close()
