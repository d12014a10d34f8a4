"""Kernels of real models as one program; `build` returns it for `slipstream compile`."""

import jax
import jax.numpy as jnp


def cudnn():
    """Fused attention of cuDNN, forward and backward."""
    shape = jax.ShapeDtypeStruct((4, 2048, 16, 128), jnp.bfloat16)

    def attend(q, k, v):
        return jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation="cudnn")

    def run(q, k, v, gradient):
        return jax.vjp(attend, q, k, v)[1](gradient)

    return run, (shape,) * 4


PARTS = (cudnn,)


def build(devices):
    """All parts, each below its name."""
    parts = {part.__name__: part() for part in PARTS}

    def step(arguments):
        results = {}
        for name, (run, _) in parts.items():
            with jax.named_scope(f"kernels.{name}"):
                results[name] = run(*arguments[name])
        return results

    return jax.jit(step), {name: shapes for name, (_, shapes) in parts.items()}
