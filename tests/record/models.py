"""Training steps that differ: what the accuracy of predictions is measured on.

Each function takes devices (real ones, or those of a topology without any) and returns the jitted
step and its abstract arguments, as `slipstream.compile` wants a target: `models.py:gpt_scan`.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

BF16, F32 = jnp.bfloat16, jnp.float32


def gpt_scan(devices, layers=8, width=2048, heads=16, words=32768, tokens=1024, batch=16):
    """GPT under `scan` with rematerialisation: f32 parameters, bf16 compute, momentum."""
    shapes = _gpt_shapes(width, (layers,))

    def loss(params, text):
        h = params["embedding"].astype(BF16)[text[:, :-1]]
        stacked = {name: params[name] for name in shapes}
        block = jax.checkpoint(functools.partial(_block, heads, "xla"))
        h, _ = jax.lax.scan(lambda h, p: (block(h, p), None), h, stacked)
        return _cross_entropy(h @ params["embedding"].astype(BF16).T, text[:, 1:])

    def step(params, momentum, text):
        value, gradients = jax.value_and_grad(loss)(params, text)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, momentum, gradients)
        return jax.tree.map(lambda p, m: p - 1e-3 * m, params, momentum), momentum, value

    params = _abstract({**shapes, "embedding": (words, width)}, F32)
    text = jax.ShapeDtypeStruct((batch, tokens + 1), jnp.int32)
    return _jit(step, devices, 2), (params, params, text)


def gpt_unrolled(
    devices, layers=6, width=1536, heads=12, words=50304, tokens=2048, batch=8, attention="xla"
):
    """GPT with its layers written out and kept activations: bf16 parameters, Adam in f32."""
    shapes = {
        f"{name}{i}": shape for i in range(layers) for name, shape in _gpt_shapes(width, ()).items()
    }

    def loss(params, text):
        h = params["embedding"][text[:, :-1]]
        for i in range(layers):
            h = _block(heads, attention, h, {k: params[f"{k}{i}"] for k in _gpt_shapes(width, ())})
        return _cross_entropy(h @ params["head"], text[:, 1:])

    def step(params, state, text):
        value, gradients = jax.value_and_grad(loss)(params, text)

        def updated(p, s, g):
            g = g.astype(F32)
            m, v = 0.9 * s[0] + 0.1 * g, 0.95 * s[1] + 0.05 * g * g
            return (p - 1e-3 * m / (jnp.sqrt(v) + 1e-8)).astype(p.dtype), jnp.stack((m, v))

        both = {name: updated(params[name], state[name], gradients[name]) for name in params}
        return {k: p for k, (p, _) in both.items()}, {k: s for k, (_, s) in both.items()}, value

    everything = {**shapes, "embedding": (words, width), "head": (width, words)}
    state = _abstract({name: (2, *shape) for name, shape in everything.items()}, F32)
    text = jax.ShapeDtypeStruct((batch, tokens + 1), jnp.int32)
    return _jit(step, devices, 2), (_abstract(everything, BF16), state, text)


def gpt_cudnn(devices):
    """The unrolled GPT with cuDNN's fused attention."""
    return gpt_unrolled(devices, attention="cudnn")


def resnet(devices, batch=128, size=224, blocks=(3, 4, 6, 3), dtype=BF16):
    """A residual network of bottleneck blocks with batch statistics."""
    shapes, strides = _resnet_shapes(blocks)

    def loss(params, images, labels):
        x = jax.nn.relu(_normed(_conv(images, params["stem"].astype(dtype), 2), params["stem_g"]))
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
        for i, stride in enumerate(strides):
            p = {k: params[f"{k}{i}"].astype(dtype) for k in "abcs" if f"{k}{i}" in params}
            y = jax.nn.relu(_normed(_conv(x, p["a"]), params[f"ga{i}"]))
            y = jax.nn.relu(_normed(_conv(y, p["b"], stride), params[f"gb{i}"]))
            y = _normed(_conv(y, p["c"]), params[f"gc{i}"])
            x = jax.nn.relu(y + (_conv(x, p["s"], stride) if "s" in p else x))
        return _cross_entropy(x.mean((1, 2)) @ params["head"].astype(dtype), labels)

    def step(params, momentum, images, labels):
        value, gradients = jax.value_and_grad(loss)(params, images, labels)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradients)
        return jax.tree.map(lambda p, m: p - 1e-2 * m, params, momentum), momentum, value

    params = _abstract(shapes, F32)
    images = jax.ShapeDtypeStruct((batch, size, size, 3), dtype)
    labels = jax.ShapeDtypeStruct((batch,), jnp.int32)
    return _jit(step, devices, 2), (params, params, images, labels)


def mixer(devices, layers=12, width=768, patches=256, batch=128, hidden=(512, 3072)):
    """An MLP mixer, all in f32: products on tensor cores as tf32, long transposes between them."""
    shapes = {"patch": (16 * 16 * 3, width), "head": (width, 1000)}
    for i in range(layers):
        shapes |= {f"t1{i}": (patches, hidden[0]), f"t2{i}": (hidden[0], patches)}
        shapes |= {f"c1{i}": (width, hidden[1]), f"c2{i}": (hidden[1], width)}

    def centred(x):
        x = x - x.mean(-1, keepdims=True)
        return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6)

    def loss(params, images, labels):
        h = images @ params["patch"]
        for i in range(layers):
            y = jnp.swapaxes(centred(h), 1, 2)
            y = jax.nn.gelu(y @ params[f"t1{i}"]) @ params[f"t2{i}"]
            h = h + jnp.swapaxes(y, 1, 2)
            h = h + jax.nn.gelu(centred(h) @ params[f"c1{i}"]) @ params[f"c2{i}"]
        return _cross_entropy(centred(h).mean(1) @ params["head"], labels)

    def step(params, images, labels):
        value, gradients = jax.value_and_grad(loss)(params, images, labels)
        return jax.tree.map(lambda p, g: p - 1e-3 * g, params, gradients), value

    images = jax.ShapeDtypeStruct((batch, patches, 16 * 16 * 3), F32)
    labels = jax.ShapeDtypeStruct((batch,), jnp.int32)
    return _jit(step, devices, 1), (_abstract(shapes, F32), images, labels)


def gpt_fsdp(devices, layers=8, width=2048, heads=16, words=32768, tokens=1024, batch=64):
    """The scanned GPT with parameters and batch divided over all devices."""
    jitted, abstract = gpt_scan(devices, layers, width, heads, words, tokens, batch)
    mesh = Mesh(np.array(devices), ("data",))
    divided = {name: PartitionSpec(None, "data", None) for name in abstract[0]}
    divided["embedding"] = PartitionSpec("data", None)
    spec = {name: NamedSharding(mesh, each) for name, each in divided.items()}
    batches = NamedSharding(mesh, PartitionSpec("data", None))
    whole = NamedSharding(mesh, PartitionSpec())
    step = jax.jit(
        jitted.__wrapped__,
        in_shardings=(spec, spec, batches),
        out_shardings=(spec, spec, whole),
        donate_argnums=(0, 1),
    )
    return step, abstract


def _gpt_shapes(width, leading):
    shapes = {
        "qkv": (width, 3 * width),
        "out": (width, width),
        "up": (width, 4 * width),
        "down": (4 * width, width),
    }
    return {name: (*leading, *shape) for name, shape in shapes.items()}


def _block(heads, attention, h, p):
    batch, tokens, width = h.shape
    p = jax.tree.map(lambda w: w.astype(BF16), p)
    with jax.named_scope("attention"):
        q, k, v = jnp.split(_rms(h) @ p["qkv"], 3, -1)
        q, k, v = (t.reshape(batch, tokens, heads, -1) for t in (q, k, v))
        a = jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation=attention)
        h = h + a.reshape(batch, tokens, width) @ p["out"]
    with jax.named_scope("mlp"):
        return h + jax.nn.gelu(_rms(h) @ p["up"]) @ p["down"]


def _rms(x):
    x = x.astype(F32)
    return (x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)).astype(BF16)


def _cross_entropy(logits, labels):
    logits = logits.astype(F32)
    target = jnp.take_along_axis(logits, labels[..., None], -1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(logits, -1) - target)


def _resnet_shapes(blocks):
    shapes, strides, before = {"stem": (7, 7, 3, 64), "stem_g": (64,)}, [], 64
    for stage, count in enumerate(blocks):
        inner = 64 << stage
        for block in range(count):
            i = len(strides)
            strides.append(2 if block == 0 and stage else 1)
            shapes |= {f"a{i}": (1, 1, before, inner), f"b{i}": (3, 3, inner, inner)}
            shapes |= {f"c{i}": (1, 1, inner, 4 * inner)}
            shapes |= {f"ga{i}": (inner,), f"gb{i}": (inner,), f"gc{i}": (4 * inner,)}
            if block == 0:
                shapes[f"s{i}"] = (1, 1, before, 4 * inner)
            before = 4 * inner
    return {**shapes, "head": (before, 1000)}, strides


def _conv(x, w, stride=1):
    numbers = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=numbers)


def _normed(x, gain):
    y = x.astype(F32)
    y = (y - y.mean((0, 1, 2))) * jax.lax.rsqrt(y.var((0, 1, 2)) + 1e-5) * (1 + gain)
    return y.astype(x.dtype)


def _abstract(shapes, dtype):
    return {name: jax.ShapeDtypeStruct(shape, dtype) for name, shape in shapes.items()}


def _jit(step, devices, donated):
    """The step on the first device; a topology's devices are no default, so it is named."""
    mesh = Mesh(np.array(devices[:1]), ("data",))
    whole = NamedSharding(mesh, PartitionSpec())
    return jax.jit(
        step, in_shardings=whole, out_shardings=whole, donate_argnums=tuple(range(donated))
    )
