"""Kernels of real models as one program; `build` returns it for `slipstream compile`."""

import jax
import jax.numpy as jnp
import numpy as np


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


def pallas_stated():
    """A kernel with a loop whose length is data; its author states what it does."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    values = jax.ShapeDtypeStruct((4096, 128), jnp.float32)
    count = jax.ShapeDtypeStruct((1,), jnp.int32)

    def kernel(count, x, out):
        def add(_, total):
            return total + jnp.exp(x[...])

        out[...] = jax.lax.fori_loop(0, count[0], add, jnp.zeros_like(x[...]))

    block = pl.BlockSpec((32, 128), lambda i: (i, 0))
    call = pl.pallas_call(
        kernel,
        out_shape=values,
        grid=(128,),
        in_specs=[pl.BlockSpec((1,), lambda i: (0,)), block],
        out_specs=block,
        compiler_params=triton.CompilerParams(),
        cost_estimate=pl.CostEstimate(flops=0, transcendentals=10**9, bytes_accessed=0),
    )

    def run(count, x):
        return jax.lax.scan(lambda x, _: (call(count, x), None), x, None, length=3)[0]

    return run, (count, values)


def product(a, b):
    """m × k with n × k."""
    return jax.lax.dot_general(a, b, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)


def fp8():
    """A product of fp8 operands with a scale each, written as XLA recognises it."""
    values = jax.ShapeDtypeStruct((8192, 8192), jnp.float8_e4m3fn)
    scale = jax.ShapeDtypeStruct((), jnp.bfloat16)

    def run(a, b, a_scale, b_scale):
        a = a.astype(jnp.bfloat16) * jnp.broadcast_to(a_scale, a.shape)
        b = b.astype(jnp.bfloat16) * jnp.broadcast_to(b_scale, b.shape)
        return product(a, b).astype(jnp.bfloat16)

    return run, (values, values, scale, scale)


def quantized():
    """Operands rounded to fp8 before their product, as in fp8 training."""
    values = jax.ShapeDtypeStruct((8192, 8192), jnp.bfloat16)

    def rounded(x):
        scale = jnp.max(jnp.abs(x)).astype(jnp.float32) / 448
        return (x.astype(jnp.float32) / scale).astype(jnp.float8_e4m3fn), scale

    def run(a, b):
        (a, a_scale), (b, b_scale) = rounded(a), rounded(b)
        return (product(a, b) * (a_scale * b_scale)).astype(jnp.bfloat16)

    return run, (values, values)


def ragged():
    """A product with a matrix for each group of rows: the experts of a layer."""
    rows = jax.ShapeDtypeStruct((16384, 4096), jnp.bfloat16)
    experts = jax.ShapeDtypeStruct((8, 4096, 2048), jnp.bfloat16)
    sizes = jax.ShapeDtypeStruct((8,), jnp.int32)
    return jax.lax.ragged_dot, (rows, experts, sizes)


def routing():
    """The way of tokens to their experts and back: top-k, sort, gather and scatter."""
    tokens = jax.ShapeDtypeStruct((16384, 4096), jnp.bfloat16)
    logits = jax.ShapeDtypeStruct((16384, 64), jnp.float32)

    def run(tokens, logits):
        weights, chosen = jax.lax.top_k(jax.nn.softmax(logits), 2)
        order = jnp.argsort(chosen.reshape(-1))
        gathered = tokens[order // 2] * weights.reshape(-1)[order, None].astype(tokens.dtype)
        return jnp.zeros_like(tokens).at[order // 2].add(gathered)

    return run, (tokens, logits)


def dropout():
    """Random bits of JAX's usual generator and of XLA's own, each used as a mask."""
    values = jax.ShapeDtypeStruct((64, 1024, 4096), jnp.bfloat16)
    key = jax.ShapeDtypeStruct((2,), jnp.uint32)
    state = jax.ShapeDtypeStruct((4,), jnp.uint32)

    def run(x, y, key, state):
        mask = jax.random.bernoulli(jax.random.wrap_key_data(key), 0.9, x.shape)
        _, bits = jax.lax.rng_bit_generator(state, y.shape, jnp.uint32)
        return jnp.where(mask, x / 0.9, 0), jnp.where(bits < 2**30, y * 2, 0)

    return run, (values, values, key, state)


def callback():
    """A function of Python in the middle of a step."""
    values = jax.ShapeDtypeStruct((1024, 4096), jnp.float32)

    def run(x):
        return jax.pure_callback(lambda x: x, values, x * 2) + 1

    return run, (values,)


PARTS = (
    cudnn,
    pallas_triton,
    pallas_mosaic,
    pallas_stated,
    fp8,
    quantized,
    ragged,
    routing,
    dropout,
    callback,
)


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


def ring(devices):
    """Attention over sequences cut in as many parts as there are devices; keys go round."""
    mesh = jax.sharding.Mesh(np.array(devices), ("ring",))
    cut = jax.sharding.PartitionSpec(None, "ring")
    count = len(devices)
    shape = jax.ShapeDtypeStruct((1, count * 2048, 16, 128), jnp.bfloat16)

    def attend(q, k, v):
        def block(state, _):
            total, k, v = state
            scores = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(jnp.float32))
            total += jnp.einsum("bhqk,bkhd->bqhd", scores.astype(v.dtype), v)
            pairs = [(n, (n + 1) % count) for n in range(count)]
            k, v = (jax.lax.ppermute(one, "ring", pairs) for one in (k, v))
            return (total, k, v), None

        return jax.lax.scan(block, (jnp.zeros_like(q), k, v), None, length=count)[0][0]

    mapped = jax.shard_map(attend, mesh=mesh, in_specs=(cut, cut, cut), out_specs=cut)
    sharding = jax.sharding.NamedSharding(mesh, cut)
    step = jax.jit(mapped, in_shardings=(sharding,) * 3, out_shardings=sharding)
    return step, shape, shape, shape
