"""The model: logistic regression with a hidden layer."""

import jax
import jax.numpy as jnp


def init(key, width):
    first, second = jax.random.split(key)
    return {
        "in": jax.random.normal(first, (32, width)) * 0.2,
        "out": jax.random.normal(second, (width, 1)) * width**-0.5,
    }


def loss_fn(params, x, y):
    logits = (jax.nn.silu(x @ params["in"]) @ params["out"])[:, 0]
    return jnp.mean(jax.nn.softplus(logits) - y * logits)
