"""Record the profiles of tests/data that need a GPU: `python tests/record/record.py OUT`.

Two models, each compiled twice in one process (so that both share one set of autotuning
results): with command buffers, as by default, and without, where the profiler labels every
kernel with its instruction. The unlabelled recording is the question, the labelled one the answer.
"""

import glob
import gzip
import os
import shutil
import sys

import jax
import jax.numpy as jnp
import numpy as np

NO_COMMAND_BUFFERS = {"xla_gpu_enable_command_buffer": ""}


def attention_model():
    """GPT blocks under `scan` with cuDNN flash attention; steps carry annotations."""
    layers, d, heads, seq, batch, vocab = 4, 2048, 16, 2048, 16, 16384
    rng = np.random.default_rng(0)
    shapes = {
        "wqkv": (layers, d, 3 * d),
        "wo": (layers, d, d),
        "w1": (layers, d, 4 * d),
        "w2": (layers, 4 * d, d),
    }
    params = {k: jnp.asarray(rng.normal(0, 0.02, s), jnp.bfloat16) for k, s in shapes.items()}
    params["emb"] = jnp.asarray(rng.normal(0, 0.02, (vocab, d)), jnp.bfloat16)

    def norm(x):
        return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)

    def block(h, p):
        with jax.named_scope("attention"):
            q, k, v = jnp.split(norm(h) @ p["wqkv"], 3, -1)
            q, k, v = (t.reshape(batch, seq, heads, d // heads) for t in (q, k, v))
            a = jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation="cudnn")
            h = h + a.reshape(batch, seq, d) @ p["wo"]
        with jax.named_scope("mlp"):
            return h + jax.nn.gelu(norm(h) @ p["w1"]) @ p["w2"], None

    def loss(params, tokens):
        h = params["emb"][tokens[:, :-1]]
        h, _ = jax.lax.scan(jax.checkpoint(block), h, {k: params[k] for k in shapes})
        logits = (h @ params["emb"].T).astype(jnp.float32)
        target = jnp.take_along_axis(logits, tokens[:, 1:, None], -1)[..., 0]
        return jnp.mean(jax.nn.logsumexp(logits, -1) - target)

    def step(params, tokens):
        value, grads = jax.value_and_grad(loss)(params, tokens)
        with jax.named_scope("optimizer"):
            return jax.tree.map(lambda p, g: p - 1e-3 * g, params, grads), value

    tokens = jnp.asarray(rng.integers(0, vocab, (batch, seq + 1)))
    return step, params, tokens


def convolution_model():
    """A small residual network with batch statistics, layers written out."""
    rng = np.random.default_rng(0)
    widths = [64, 64, 128, 128, 256, 256]
    params = {"stem": jnp.asarray(rng.normal(0, 0.1, (7, 7, 3, 64)), jnp.bfloat16)}
    before = 64
    for i, width in enumerate(widths):
        params[f"a{i}"] = jnp.asarray(rng.normal(0, 0.05, (3, 3, before, width)), jnp.bfloat16)
        params[f"b{i}"] = jnp.asarray(rng.normal(0, 0.05, (3, 3, width, width)), jnp.bfloat16)
        params[f"s{i}"] = jnp.asarray(rng.normal(0, 0.05, (1, 1, before, width)), jnp.bfloat16)
        params[f"g{i}"] = jnp.ones((width,), jnp.float32)
        before = width
    params["head"] = jnp.asarray(rng.normal(0, 0.05, (before, 1000)), jnp.bfloat16)

    def conv(x, w, stride=1):
        numbers = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(
            x, w, (stride, stride), "SAME", dimension_numbers=numbers
        )

    def batch_norm(x, gain):
        y = x.astype(jnp.float32)
        y = (y - y.mean((0, 1, 2))) * jax.lax.rsqrt(y.var((0, 1, 2)) + 1e-5) * gain
        return y.astype(x.dtype)

    def loss(params, batch):
        images, labels = batch
        x = jax.nn.relu(conv(images, params["stem"], 2))
        for i, _ in enumerate(widths):
            stride = 2 if i in (2, 4) else 1
            with jax.named_scope(f"block{i}"):
                y = jax.nn.relu(batch_norm(conv(x, params[f"a{i}"], stride), params[f"g{i}"]))
                x = jax.nn.relu(conv(y, params[f"b{i}"]) + conv(x, params[f"s{i}"], stride))
        logits = (x.mean((1, 2)) @ params["head"]).astype(jnp.float32)
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], -1))

    def step(params, batch):
        value, grads = jax.value_and_grad(loss)(params, batch)
        new = jax.tree.map(lambda p, g: (p - 1e-3 * g).astype(p.dtype), params, grads)
        return new, value

    images = jnp.asarray(rng.normal(0, 1, (256, 224, 224, 3)), jnp.bfloat16)
    return step, params, (images, jnp.asarray(rng.integers(0, 1000, 256)))


def record(out, name, compiled, params, batch, annotate, steps=3):
    for _ in range(10):
        params, value = compiled(params, batch)
    jax.block_until_ready(params)
    folder = f"/tmp/slipstream_record_{name}"
    shutil.rmtree(folder, ignore_errors=True)
    jax.profiler.start_trace(folder)
    for i in range(steps):
        if annotate:
            with jax.profiler.StepTraceAnnotation("train", step_num=i):
                params, value = compiled(params, batch)
                jax.block_until_ready(params)
        else:
            params, value = compiled(params, batch)
    jax.block_until_ready(params)
    jax.profiler.stop_trace()
    (path,) = glob.glob(folder + "/plugins/profile/*/*.xplane.pb")
    with open(path, "rb") as source, gzip.open(f"{out}/{name}.xplane.pb.gz", "wb") as sink:
        shutil.copyfileobj(source, sink)
    print(name, os.path.getsize(path), "bytes", float(value))


def main(out):
    models = {"attention": (attention_model, True), "convolution": (convolution_model, False)}
    for name, (model, annotate) in models.items():
        step, params, batch = model()
        lowered = jax.jit(step).lower(params, batch)
        graphs = lowered.compile()
        plain = lowered.compile(compiler_options=NO_COMMAND_BUFFERS)
        print(name, "same schedule:", graphs.as_text() == plain.as_text())
        record(out, f"{name}_graphs", graphs, params, batch, annotate)
        record(out, f"{name}_plain", plain, params, batch, annotate)


if __name__ == "__main__":
    main(sys.argv[1])
