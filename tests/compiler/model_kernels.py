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


def pallas_triton():
    """Flash attention of Pallas in Triton, forward and backward."""
    from jax.experimental.pallas.ops.gpu import attention

    shape = jax.ShapeDtypeStruct((4, 2048, 16, 128), jnp.bfloat16)

    def attend(q, k, v):
        return attention.mha(q, k, v, segment_ids=None, causal=True)

    def run(q, k, v, gradient):
        return jax.vjp(attend, q, k, v)[1](gradient)

    return run, (shape,) * 4


def pallas_mosaic():
    """A product of Pallas in Mosaic GPU, which asks the device for its cores."""
    from jax.experimental.pallas.ops.gpu import hopper_matmul_mgpu

    shape = jax.ShapeDtypeStruct((4096, 4096), jnp.bfloat16)
    config = hopper_matmul_mgpu.TuningConfig(
        tile_m=128, tile_n=128, tile_k=64, max_concurrent_steps=4
    )

    def run(a, b):
        return hopper_matmul_mgpu.matmul(a, b, None, config)

    return run, (shape,) * 2


PARTS = (cudnn, pallas_triton, pallas_mosaic)


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
