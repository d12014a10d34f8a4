"""A dozen variants of two models: predicted without a GPU, measured later on one: JSON.

    python tests/record/variants.py --predict predictions.json          # needs no GPU
    python tests/record/variants.py --measure measured.json             # on an H200, < 6 minutes
    python tests/record/variants.py --compare predictions.json measured.json
    python tests/record/variants.py --kernels kernels.json.gz           # on an H200

Six models, each with attention of XLA, cuDNN or Pallas; everything, products or nothing kept for
the backward pass; layers in a scan or written out; products in bf16 or fp8. The kernels of the GPT
and the mixture of experts took part in the fit of machines/kernels.json; the Llama and the encoder
were predicted after it, and measured after that. Kernels of the Llama over rows then took part in a
second fit, after which the last two models were predicted, and measured.
`slipstream predict tests/record/variants.py:build`
takes the first variant.
"""

import argparse
import datetime
import functools
import gzip
import json
import math
import statistics
import time
from contextlib import nullcontext

import jax
import jax.numpy as jnp

BF16, F32, E4M3, E5M2 = jnp.bfloat16, jnp.float32, jnp.float8_e4m3fn, jnp.float8_e5m2
WORDS, TOKENS, BATCH, WIDTH, HEADS, LAYERS, EXPERTS, CHOSEN = 32768, 2048, 8, 2048, 16, 8, 8, 2
WARM_S, STEPS, REPEATS = 3.0, 5, 4
VARIANTS = {
    "gpt xla full scan": {"attention": "xla", "remat": "full", "scan": True},
    "gpt xla dots scan": {"attention": "xla", "remat": "dots", "scan": True},
    "gpt xla none unrolled": {"attention": "xla"},
    "gpt cudnn full scan": {"remat": "full", "scan": True},
    "gpt cudnn dots unrolled": {"remat": "dots"},
    "gpt cudnn none scan": {"scan": True},
    "gpt cudnn none unrolled": {},
    "gpt pallas full scan": {"attention": "pallas", "remat": "full", "scan": True},
    "gpt pallas none unrolled": {"attention": "pallas"},
    "gpt cudnn none unrolled fp8": {"fp8": True},
    "moe xla full scan": {"attention": "xla", "remat": "full", "scan": True, "moe": True},
    "moe cudnn full scan": {"remat": "full", "scan": True, "moe": True},
    "moe cudnn none unrolled": {"moe": True},
    "llama xla full scan": {"attention": "xla", "remat": "full", "scan": True},
    "llama xla dots unrolled": {"attention": "xla", "remat": "dots"},
    "llama cudnn full scan": {"remat": "full", "scan": True},
    "llama cudnn dots scan": {"remat": "dots", "scan": True},
    "llama cudnn none unrolled": {},
    "llama pallas full unrolled": {"attention": "pallas", "remat": "full"},
    "llama cudnn full unrolled fp8": {"remat": "full", "fp8": True},
    "encoder xla none unrolled": {"attention": "xla"},
    "encoder xla full scan": {"attention": "xla", "remat": "full", "scan": True},
    "encoder cudnn none scan": {"scan": True},
    "encoder cudnn dots unrolled": {"remat": "dots"},
    "encoder pallas none unrolled": {"attention": "pallas"},
    "wide xla none scan": {"attention": "xla", "scan": True},
    "wide xla full unrolled": {"attention": "xla", "remat": "full"},
    "wide cudnn none scan": {"scan": True},
    "wide cudnn dots unrolled": {"remat": "dots"},
    "wide cudnn full scan": {"remat": "full", "scan": True},
    "wide pallas none unrolled": {"attention": "pallas"},
    "wide cudnn none unrolled fp8": {"fp8": True},
    "parallel xla dots scan": {"attention": "xla", "remat": "dots", "scan": True},
    "parallel xla none unrolled": {"attention": "xla"},
    "parallel cudnn none unrolled": {},
    "parallel cudnn full scan": {"remat": "full", "scan": True},
    "parallel pallas full unrolled": {"attention": "pallas", "remat": "full"},
}


def build(devices, variant="gpt xla full scan"):
    """(jitted step, abstract arguments) of a variant, as `slipstream.compile` wants them."""
    models = {"llama": Llama, "encoder": Encoder, "wide": Wide, "parallel": Parallel}
    if (model := models.get(variant.split()[0])) is not None:
        return adam_step(model, **VARIANTS[variant])
    return training_step(**VARIANTS[variant])


def training_step(attention="cudnn", remat="none", scan=False, fp8=False, moe=False):
    block = functools.partial(layer, attention, scaled if fp8 else jnp.matmul, moe)
    if remat != "none":
        policies = jax.checkpoint_policies
        keep = policies.dots_with_no_batch_dims_saveable if remat == "dots" else None
        block = jax.checkpoint(block, policy=keep)
    shapes = {"qkv": (WIDTH, 3 * WIDTH), "out": (WIDTH, WIDTH)}
    if moe:
        shapes |= {"router": (WIDTH, EXPERTS), "up": (EXPERTS, WIDTH, 2 * WIDTH)}
        shapes |= {"down": (EXPERTS, 2 * WIDTH, WIDTH)}
    else:
        shapes |= {"up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}

    loss = next_word_loss(block, shapes, LAYERS, scan)

    def step(params, momentum, text):
        value, gradients = jax.value_and_grad(loss)(params, text)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, momentum, gradients)
        return jax.tree.map(lambda p, m: p - 1e-3 * m, params, momentum), momentum, value

    every = {name: (LAYERS, *shape) for name, shape in shapes.items()}
    every["embedding"] = (WORDS, WIDTH)
    params = {name: jax.ShapeDtypeStruct(shape, F32) for name, shape in every.items()}
    text = jax.ShapeDtypeStruct((BATCH, TOKENS + 1), jnp.int32)
    return jax.jit(step, donate_argnums=(0, 1)), params, params, text


def next_word_loss(block, names, count, scan):
    """The loss of so many blocks between an embedding and the same, transposed."""

    def loss(params, text):
        h = params["embedding"].astype(BF16)[text[:, :-1]]
        layers = {name: params[name] for name in names}
        if scan:
            h, _ = jax.lax.scan(lambda h, p: (block(h, p), None), h, layers)
        else:
            for i in range(count):
                h = block(h, {name: value[i] for name, value in layers.items()})
        logits = (normed(h) @ params["embedding"].astype(BF16).T).astype(F32)
        picked = jnp.take_along_axis(logits, text[:, 1:, None], -1)[..., 0]
        return jnp.mean(jax.nn.logsumexp(logits, -1) - picked)

    return loss


def llama_shapes(width, shared, hidden):
    return {
        "q": (width, width),
        "k": (width, shared),
        "v": (width, shared),
        "out": (width, width),
        "gate": (width, hidden),
        "up": (width, hidden),
        "down": (hidden, width),
        "before": (width,),
        "after": (width,),
    }


class Llama:
    """Grouped-query attention, rotary positions, SwiGLU."""

    words, tokens, batch, width, heads, groups, layers, hidden = (
        49152, 4096, 4, 3072, 24, 8, 8, 8192,
    )  # fmt: skip
    head = width // heads
    shapes = llama_shapes(width, groups * head, hidden)

    @classmethod
    def block(cls, attention, matmul, h, p):
        with jax.named_scope("attention"):
            y = normed(h) * p["before"]
            q = matmul(y, p["q"]).reshape(*h.shape[:2], cls.heads, cls.head)
            k, v = (matmul(y, p[name]).reshape(*h.shape[:2], cls.groups, cls.head) for name in "kv")
            q, k = turned(q), turned(k)
            if attention == "pallas":
                k, v = (jnp.repeat(t, cls.heads // cls.groups, 2) for t in (k, v))
            h = h + matmul(attend(attention, q, k, v).reshape(h.shape), p["out"])
        with jax.named_scope("mlp"):
            y = normed(h) * p["after"]
            return h + matmul(jax.nn.silu(matmul(y, p["gate"])) * matmul(y, p["up"]), p["down"])


class Wide(Llama):
    """The layers of an 8B model, shorter sequences."""

    words, tokens, batch, width, heads, groups, layers, hidden = (
        64000, 2048, 6, 4096, 32, 8, 5, 14336,
    )  # fmt: skip
    head = width // heads
    shapes = llama_shapes(width, groups * head, hidden)


class Parallel:
    """Attention and MLP side by side, of one norm; heads of 64."""

    words, tokens, batch, width, heads, layers = 50304, 1024, 24, 1536, 24, 14
    shapes = {
        "q": (width, width),
        "k": (width, width),
        "v": (width, width),
        "out": (width, width),
        "up": (width, 4 * width),
        "down": (4 * width, width),
        "scale": (width,),
        "shift": (width,),
    }

    @classmethod
    def block(cls, attention, matmul, h, p):
        y = centred(h) * p["scale"] + p["shift"]
        q, k, v = (matmul(y, p[n]).reshape(*h.shape[:2], cls.heads, -1) for n in "qkv")
        mixed = matmul(attend(attention, q, k, v).reshape(h.shape), p["out"])
        return h + mixed + matmul(jax.nn.gelu(matmul(y, p["up"])), p["down"])


class Encoder:
    """Attention both ways, biases, layer norms with a mean."""

    words, tokens, batch, width, heads, layers = 30592, 512, 64, 1024, 16, 12
    shapes = {
        "qkv": (width, 3 * width),
        "qkv bias": (3 * width,),
        "out": (width, width),
        "up": (width, 4 * width),
        "up bias": (4 * width,),
        "down": (4 * width, width),
        "down bias": (width,),
        "scale": (width,),
        "shift": (width,),
    }

    @classmethod
    def block(cls, attention, matmul, h, p):
        with jax.named_scope("attention"):
            y = centred(h) * p["scale"] + p["shift"]
            q, k, v = jnp.split(matmul(y, p["qkv"]) + p["qkv bias"], 3, -1)
            q, k, v = (t.reshape(*t.shape[:2], cls.heads, -1) for t in (q, k, v))
            h = h + matmul(attend(attention, q, k, v, False).reshape(h.shape), p["out"])
        with jax.named_scope("mlp"):
            inner = jax.nn.gelu(matmul(centred(h), p["up"]) + p["up bias"])
            return h + matmul(inner, p["down"]) + p["down bias"]


def adam_step(model, attention="cudnn", remat="none", scan=False, fp8=False):
    def layer(h, p):
        p = jax.tree.map(lambda w: w.astype(BF16), p)
        return model.block(attention, scaled if fp8 else jnp.matmul, h, p)

    if remat != "none":
        policies = jax.checkpoint_policies
        keep = policies.dots_with_no_batch_dims_saveable if remat == "dots" else None
        layer = jax.checkpoint(layer, policy=keep)

    loss = next_word_loss(layer, model.shapes, model.layers, scan)

    def step(params, moments, text):
        value, gradients = jax.value_and_grad(loss)(params, text)
        first = {k: 0.9 * moments["first", k] + 0.1 * g for k, g in gradients.items()}
        second = {k: 0.99 * moments["second", k] + 0.01 * g * g for k, g in gradients.items()}
        params = {k: p - 1e-4 * first[k] / (jnp.sqrt(second[k]) + 1e-6) for k, p in params.items()}
        kept = {("first", k): v for k, v in first.items()}
        return params, kept | {("second", k): v for k, v in second.items()}, value

    every = {name: (model.layers, *shape) for name, shape in model.shapes.items()}
    every["embedding"] = (model.words, model.width)
    params = {name: jax.ShapeDtypeStruct(shape, F32) for name, shape in every.items()}
    moments = {(kind, name): a for kind in ("first", "second") for name, a in params.items()}
    text = jax.ShapeDtypeStruct((model.batch, model.tokens + 1), jnp.int32)
    return jax.jit(step, donate_argnums=(0, 1)), params, moments, text


def turned(x):
    """Rotary positions."""
    half = x.shape[-1] // 2
    rates = 1e4 ** (-jnp.arange(half, dtype=F32) / half)
    angles = jnp.arange(x.shape[1], dtype=F32)[:, None, None] * rates
    one, other = x[..., :half].astype(F32), x[..., half:].astype(F32)
    sin, cos = jnp.sin(angles), jnp.cos(angles)
    return jnp.concatenate([one * cos - other * sin, one * sin + other * cos], -1).astype(BF16)


def centred(x):
    x = x.astype(F32)
    x = x - jnp.mean(x, -1, keepdims=True)
    return (x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)).astype(BF16)


def layer(attention, matmul, moe, h, p):
    p = jax.tree.map(lambda w: w.astype(BF16), p)
    with jax.named_scope("attention"):
        q, k, v = jnp.split(matmul(normed(h), p["qkv"]), 3, -1)
        q, k, v = (t.reshape(*t.shape[:2], HEADS, -1) for t in (q, k, v))
        h = h + matmul(attend(attention, q, k, v).reshape(h.shape), p["out"])
    if moe:
        with jax.named_scope("experts"):
            return h + experts(normed(h).reshape(-1, WIDTH), p).reshape(h.shape)
    with jax.named_scope("mlp"):
        return h + matmul(jax.nn.gelu(matmul(normed(h), p["up"])), p["down"])


def attend(attention, q, k, v, is_causal=True):
    if attention == "pallas":
        from jax.experimental.pallas.ops.gpu import attention as pallas

        q = q / math.sqrt(q.shape[-1])
        return pallas.mha(q, k, v, segment_ids=None, causal=is_causal)
    return jax.nn.dot_product_attention(q, k, v, is_causal=is_causal, implementation=attention)


def normed(x):
    x = x.astype(F32)
    return (x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)).astype(BF16)


def experts(x, p):
    """Each token goes to its two best experts, of equal capacity; what is too much is dropped."""
    capacity = x.shape[0] * CHOSEN // EXPERTS
    weights, chosen = jax.lax.top_k(jax.nn.softmax((x @ p["router"]).astype(F32)), CHOSEN)
    order = jnp.argsort(chosen.reshape(-1), stable=True)
    place = jnp.arange(order.size).reshape(EXPERTS, capacity)
    token, weight = (order // CHOSEN)[place], weights.reshape(-1)[order][place]
    inner = jax.nn.gelu(jnp.einsum("ecd,edf->ecf", x[token], p["up"]))
    outer = jnp.einsum("ecf,efd->ecd", inner, p["down"]) * weight[..., None].astype(BF16)
    return jnp.zeros_like(x, F32).at[token].add(outer.astype(F32)).astype(BF16)


@jax.custom_vjp
def scaled(x, w):
    """A product in fp8 with a scale for each operand, forward and backward."""
    return _forward(x, w)[0]


def _forward(x, w):
    (x8, xs), (w8, ws) = rounded(x, E4M3), rounded(w, E4M3)
    return _product(x8, w8, xs * ws, ((2,), (0,))), (x8, xs, w8, ws)


def _backward(kept, g):
    x8, xs, w8, ws = kept
    g8, gs = rounded(g, E5M2)
    return (
        _product(g8, w8, gs * ws, ((2,), (1,))),
        _product(x8, g8, xs * gs, ((0, 1), (0, 1))),
    )


scaled.defvjp(_forward, _backward)


def rounded(x, dtype):
    scale = jnp.max(jnp.abs(x)).astype(F32) / float(jnp.finfo(dtype).max) + 1e-12
    return (x.astype(F32) / scale).astype(dtype), scale


def _product(a, b, scale, contracted):
    product = jax.lax.dot_general(a, b, (contracted, ((), ())), preferred_element_type=F32)
    return (product * scale).astype(BF16)


# Predicting.


def predict(out, names):
    from slipstream.compiler.compile import compilation
    from slipstream.machines.topology import machine
    from slipstream.plan.report.limits import limits_of
    from slipstream.simulate.prediction import predict as predicted

    found = {"date": today(), "jax": jax.__version__, "machine": "H200", "variants": {}}
    for name in names:
        begin = time.perf_counter()
        try:
            compiled = compilation(f"{__file__}:build", {"variant": name}, on="H200")
            step = predicted(compiled.program, machine("H200"), compilation=compiled)
        except Exception as error:  # the other variants are worth predicting all the same
            print(f"{name:30s} failed: {str(error)[:300]}", flush=True)
            continue
        found["variants"][name] = {
            "step_ms": step.step_us / 1e3,
            "low_ms": step.low_us / 1e3,
            "high_ms": step.high_us / 1e3,
            "memory_bytes": step.memory_bytes,
            "basis": dict(step.basis),
            "unknown": {kernel.name: kernel.share for kernel in step.unknown},
            "parts_us": limits_of(step, compiled.program, machine("H200"))[1],
        }
        seconds = time.perf_counter() - begin
        print(f"{name:30s} {step.step_us / 1e3:8.1f} ms  ({seconds:.0f} s)", flush=True)
        write(out, found)


# Measuring.


def measure(out, names):
    import power

    is_gpu = jax.default_backend() == "gpu"
    device = jax.devices()[0].device_kind
    found = {"date": today(), "jax": jax.__version__, "machine": device, "variants": {}}
    with power.Sampler() if is_gpu else nullcontext() as sampler:
        for name in names:
            begin = time.perf_counter()
            try:
                found["variants"][name] = measured(name, sampler)
            except Exception as error:  # the other variants are worth measuring all the same
                print(f"{name:30s} failed: {str(error)[:300]}", flush=True)
                continue
            row = found["variants"][name]
            seconds = time.perf_counter() - begin
            print(f"{name:30s} {row['step_ms']:8.2f} ms  ({seconds:.0f} s)", flush=True)
            write(out, found)


def measured(name, sampler):
    jitted, *abstract = build(jax.devices(), name)
    compiled = jitted.lower(*abstract).compile()
    *state, text = filled(abstract)

    def steps(count):
        nonlocal state
        begin = time.perf_counter()
        for _ in range(count):
            *state, loss = compiled(*state, text)
        jax.block_until_ready(loss)
        return (time.perf_counter() - begin) / count, loss

    warm = time.monotonic()
    while time.monotonic() - warm < WARM_S:
        steps(2)
    begin = time.monotonic()
    times, loss = zip(*(steps(STEPS) for _ in range(REPEATS)), strict=True)
    clock = sampler.between(begin, time.monotonic()) if sampler else {}
    memory = compiled.memory_analysis()
    return {
        "step_ms": statistics.median(times) * 1e3,
        "all_ms": [round(seconds * 1e3, 3) for seconds in times],
        "temporaries_bytes": getattr(memory, "temp_size_in_bytes", None),
        "loss": float(loss[-1]),
        **clock,
    }


def kernels(out, names):
    """The time of each instruction, for the models of kernels: lock the GPU's clock before."""
    import record_kernels

    found = {"jax": jax.__version__, "device": jax.devices()[0].device_kind, "groups": []}
    options = {"xla_gpu_enable_command_buffer": ""} if jax.default_backend() == "gpu" else {}
    for name in names:
        begin = time.perf_counter()
        jitted, *abstract = build(jax.devices(), name)
        compiled = jitted.lower(*abstract).compile(compiler_options=options)
        *state, text = filled(abstract)

        def step(compiled=compiled, text=text):
            nonlocal state
            *state, loss = compiled(*state, text)
            jax.block_until_ready(loss)

        for _ in range(5):
            step()
        profile = record_kernels._loaded(record_kernels.profiled(step, 5))
        program = record_kernels._without_places(compiled.as_text())
        us = record_kernels._measured(profile)
        found["groups"].append({"name": name, "us": us, "hlo": program})
        with gzip.GzipFile(out, "wb", mtime=0) as file:
            file.write(json.dumps(found).encode())
        seconds = time.perf_counter() - begin
        print(f"{name:30s} {len(us)} instructions ({seconds:.0f} s)", flush=True)


def filled(abstract):
    """Random weights, no momentum, random text."""
    params, momentum, text = abstract

    @jax.jit
    def made(key):
        keys = dict(zip(params, jax.random.split(key, len(params)), strict=True))
        weights = {
            k: jax.random.normal(keys[k], a.shape) * 0.02 + (k in ("before", "after", "scale"))
            for k, a in params.items()
        }
        zeros = {k: jnp.zeros(a.shape, a.dtype) for k, a in momentum.items()}
        words = params["embedding"].shape[0]
        return weights, zeros, jax.random.randint(key, text.shape, 0, words)

    return made(jax.random.key(0))


def compare(predictions, measurements):
    """Error by variant, their mean, and pairs whose order is wrong though they differ by 3%."""
    with open(predictions) as one, open(measurements) as other:
        before, after = json.load(one), json.load(other)
    print(f"predicted {before['date']}, measured {after['date']}, {after['machine']}")
    pairs = {
        name: (before["variants"][name]["step_ms"], row["step_ms"])
        for name, row in after["variants"].items()
        if name in before["variants"]
    }
    for name, (expected, seen) in pairs.items():
        print(f"{name:30s} {expected:8.1f} {seen:8.1f} ms  {expected / seen - 1:+6.1%}")
    errors = [abs(expected / seen - 1) for expected, seen in pairs.values()]
    wrong = [
        (a, b)
        for a in pairs
        for b in pairs
        if pairs[a][1] * 1.03 < pairs[b][1] and pairs[a][0] >= pairs[b][0]
    ]
    print(f"mean {statistics.mean(errors):.1%}, worst {max(errors):.1%}, wrong order: {wrong}")


def today():
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def write(out, found):
    with open(out, "w") as file:
        json.dump(found, file, indent=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--predict", metavar="OUT")
    parser.add_argument("--measure", metavar="OUT")
    parser.add_argument("--kernels", metavar="OUT")
    parser.add_argument("--compare", nargs=2, metavar=("PREDICTIONS", "MEASUREMENTS"))
    parser.add_argument("--only", default="", help="variants whose names contain one of A,B,…")
    options = parser.parse_args()
    names = [n for n in VARIANTS if any(word in n for word in options.only.split(","))]
    if options.predict:
        predict(options.predict, names)
    if options.measure:
        measure(options.measure, names)
    if options.kernels:
        kernels(options.kernels, names)
    if options.compare:
        compare(*options.compare)


if __name__ == "__main__":
    main()
