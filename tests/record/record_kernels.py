"""On a GPU: how long kernels take by shape and type, for scripts/fit_kernels.py.

    python tests/record/record_kernels.py OUT.zip [--seconds N] [--only NAME] [--tiny]
    python tests/record/record_kernels.py OUT.zip --read KERNELS.json.gz       # needs no GPU

Many independent computations go into one program, so that XLA autotunes them together; each
program is run, profiled, and kept as its optimised text. Reading makes of every profile the
median time of each instruction: what the model of kernels reads is exactly what it is fitted on.
"""

import argparse
import functools
import glob
import gzip
import json
import math
import re
import tempfile
import time
import zipfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

BF16, F16, F32, F8 = jnp.bfloat16, jnp.float16, jnp.float32, jnp.float8_e4m3fn
APART = "gpu_horizontal_loop_fusion,gpu_horizontal_input_fusion,horizontal_loop_fusion"
LABELLED = {"xla_gpu_enable_command_buffer": "", "xla_disable_hlo_passes": APART}
CUBLAS = {"xla_gpu_enable_triton_gemm": False}
TRITON = {"xla_gpu_cublas_fallback": False}
RUNS = 7
KB, MB, GB = 1 << 10, 1 << 20, 1 << 30


class Group:
    """Computations of one program; each has its own inputs."""

    def __init__(self, name, **options):
        self.name, self.options = name, options
        self.functions, self.inputs = [], []

    def add(self, function, *shapes):
        self.functions.append(function)
        self.inputs.append([jax.ShapeDtypeStruct(dims, dtype) for dims, dtype in shapes])
        return self


def gemms(group, dtype, shapes, result=None):
    """`(m, n, k)` or `(batch, m, n, k)`; a letter says which operands come transposed."""
    for *batch, m, n, k, form in shapes:
        left = (*batch, k, m) if "t" in form else (*batch, m, k)
        right = (*batch, n, k) if "r" in form else (*batch, k, n)
        rank = len(batch)
        contracted = ((rank if "t" in form else rank + 1,), (rank + 1 if "r" in form else rank,))
        numbers = (contracted, (tuple(range(rank)),) * 2)

        def product(a, b, numbers=numbers):
            return jax.lax.dot_general(a, b, numbers, preferred_element_type=result or dtype)

        group.add(product, (left, dtype), (right, dtype))
    return group


LARGE = [
    (16384, 2048, 2048, ""), (16384, 8192, 2048, ""), (16384, 2048, 8192, "r"),
    (16384, 6144, 2048, "r"), (2048, 8192, 16384, "t"), (2048, 2048, 16384, "t"),
    (8192, 8192, 8192, ""), (16384, 16384, 4096, ""), (8192, 1024, 1024, ""),
    (8192, 4096, 1024, ""), (4096, 4096, 4096, ""), (2048, 2048, 2048, ""),
    (1024, 1024, 1024, ""), (512, 512, 512, ""), (256, 256, 256, ""), (1024, 1024, 16384, "t"),
    (512, 512, 32768, "t"), (256, 4096, 4096, ""), (64, 8192, 8192, ""), (16, 4096, 16384, ""),
    (4096, 50304, 1024, ""), (1000, 3000, 500, ""), (16384, 1024, 32768, "r"),
    (1024, 4096, 8192, "t"), (2048, 12288, 3072, ""), (3072, 3072, 12288, "t"),
    (8192, 28672, 4096, ""), (384, 1536, 6144, ""), (32768, 512, 2048, ""),
]  # fmt: skip
BATCHED = [
    (128, 1024, 1024, 128, "r"), (128, 1024, 128, 1024, ""), (256, 2048, 2048, 64, "r"),
    (256, 2048, 64, 2048, ""), (64, 512, 512, 64, "r"), (64, 2048, 128, 2048, "t"),
    (32, 256, 512, 256, ""), (16, 4096, 4096, 128, "r"),
]  # fmt: skip


def gemm_groups():
    yield gemms(Group("gemm bf16"), BF16, LARGE[:15])
    yield gemms(Group("gemm bf16 cublas", **CUBLAS), BF16, LARGE)
    yield around_gemms()
    yield gemms(Group("gemm bf16 batched"), BF16, BATCHED)
    yield gemms(Group("gemm f32"), F32, [*LARGE[:2], *LARGE[4:7], *LARGE[9:19], *BATCHED[:2]])
    yield gemms(Group("gemm bf16 batched cublas", **CUBLAS), BF16, BATCHED)
    yield gemms(Group("gemm bf16 triton", **TRITON), BF16, [*LARGE[:8:2], *LARGE[9:13]])
    yield gemms(Group("gemm f32 cublas", **CUBLAS), F32, LARGE[:20:2])
    yield gemms(Group("gemm bf16 b"), BF16, LARGE[15:])
    yield gemms(Group("gemm f16"), F16, LARGE[:12:3])
    yield gemms(Group("gemm f8"), F8, [LARGE[0], LARGE[6], LARGE[10]], BF16)


def around_gemms():
    """What models put before and after their products."""
    group = Group("gemm fused")
    for m, n, k in ((16384, 4096, 1024), (8192, 2048, 8192), (4096, 1024, 1024)):
        group.add(lambda x, w: x @ w.astype(BF16), ((m, k), BF16), ((k, n), F32))
        group.add(lambda x, w: jax.nn.gelu(x @ w), ((m, k), BF16), ((k, n), BF16))
        group.add(lambda x, w, h: h + x @ w, ((m, k), BF16), ((k, n), BF16), ((m, n), BF16))
        group.add(
            lambda x, w, b: jax.nn.relu(x @ w + b), ((m, k), BF16), ((k, n), BF16), ((n,), BF16)
        )
        group.add(
            lambda x, g: (x.T @ g).astype(F32) * 0.1, ((n * 2, m // 2), BF16), ((n * 2, k), BF16)
        )
    return group


def elementwise_groups():
    sizes = [64 * KB, 512 * KB, 4 * MB, 16 * MB, 64 * MB, 256 * MB, 1 * GB, 4 * GB]
    for dtype in (BF16, F32):
        group = Group(f"elementwise {dtype.__name__}")
        for size in sizes:
            n = size // jnp.dtype(dtype).itemsize
            group.add(lambda x: x * 2 + 1, ((n,), dtype))
            group.add(lambda x, y: x + 3 * y, ((n,), dtype), ((n,), dtype))
        yield group
    group = Group("elementwise heavy")
    for size in (1 * MB, 32 * MB, 512 * MB):
        n = size // 2
        group.add(jax.nn.gelu, ((n,), BF16))
        group.add(lambda x: jnp.exp(x).astype(BF16), ((n,), F32))
        group.add(lambda x: jnp.tanh(x) * jnp.sin(x) + jax.lax.rsqrt(x * x + 1), ((n,), F32))
        group.add(jax.grad(lambda x: jax.nn.gelu(x).astype(F32).sum()), ((n,), BF16))
        group.add(lambda x: x.astype(BF16), ((n,), F32))
        group.add(lambda x: x.astype(F32), ((n,), BF16))
        group.add(
            lambda p, m, v, g: (
                0.9 * m + 0.1 * g, 0.95 * v + 0.05 * g * g, p - m / (jnp.sqrt(v) + 1e-8)
            ),
            *[((n,), F32)] * 4,
        )  # fmt: skip
    yield group
    yield _shaped()


def _shaped():
    """Broadcasts, concatenations, slices, pads, and a causal mask."""
    group = Group("elementwise shaped")
    group.add(lambda x, b: x + b, ((16384, 4096), BF16), ((4096,), F32))
    group.add(lambda x, b: x * b[:, None], ((16384, 4096), BF16), ((16384,), F32))
    group.add(lambda x, y: jnp.concatenate((x, y), -1), *[((16384, 2048), BF16)] * 2)
    group.add(lambda x: jnp.split(x, 3, -1), ((16384, 6144), BF16))
    group.add(lambda x: jnp.pad(x, ((0, 0), (8, 8))), ((16384, 4096), BF16))
    mask = lambda s: jnp.where(jnp.tril(jnp.ones((1024, 1024), bool)), s, -1e30)  # noqa: E731
    group.add(mask, ((64, 1024, 1024), F32))
    group.add(lambda x: jnp.zeros_like(x) + 1, ((256 * MB // 4,), F32))
    group.add(jax.lax.dynamic_index_in_dim, ((8, 4096, 4096), F32), ((), jnp.int32))
    group.add(lambda x, y, i: jax.lax.dynamic_update_index_in_dim(x, y, i, 0),
              ((8, 4096, 4096), BF16), ((4096, 4096), BF16), ((), jnp.int32))  # fmt: skip
    group.add(lambda x: jnp.copy(x), ((512 * MB // 4,), F32))
    group.add(lambda x: jnp.copy(x), ((8 * MB // 4,), F32))
    group.add(lambda x: x[::-1] * 2, ((16384, 4096), BF16))
    return group


def reduction_groups():
    group = Group("reduction")
    for rows, columns in ((16384, 2048), (16384, 768), (131072, 1024), (8192, 32768), (256, 4096)):
        for dtype in (BF16, F32):
            group.add(lambda x: x.astype(F32).sum(-1), ((rows, columns), dtype))
            group.add(lambda x: x.astype(F32).sum(0), ((rows, columns), dtype))
    group.add(lambda x: (x * x).sum(), ((256 * MB // 4,), F32))
    group.add(lambda x: x.max(-1), ((256, 1024, 1024), BF16))
    group.add(lambda x: x.astype(F32).mean((0, 1, 2)), ((128, 56, 56, 256), BF16))
    group.add(lambda x: x.astype(F32).var((0, 1, 2)), ((128, 28, 28, 512), BF16))
    group.add(lambda x: x.sum(1), ((64, 1024, 1024), F32))
    group.add(lambda x: jnp.argmax(x, -1), ((16384, 4096), F32))
    yield group
    yield _normalisations()
    group = Group("transpose")
    for dtype in (BF16, F32):
        group.add(lambda x: x.T + 1, ((16384, 4096), dtype))
        group.add(lambda x: x.T + 1, ((1024, 1024), dtype))
        group.add(lambda x: jnp.swapaxes(x, 1, 2) * 2, ((16, 1024, 16, 128), dtype))
        group.add(lambda x: jnp.transpose(x, (0, 2, 3, 1)) * 2, ((16, 1024, 16, 64), dtype))
        group.add(lambda x: jnp.swapaxes(x, 1, 2) * 2, ((128, 256, 768), dtype))
        group.add(lambda x: jnp.transpose(x, (0, 3, 1, 2)) * 2, ((128, 56, 56, 64), dtype))
    yield group


def _normalisations():
    """Several kernels each, fused as XLA likes; backward passes with them."""
    group = Group("normalisation")

    def rms(x):
        y = x.astype(F32)
        return (y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6)).astype(x.dtype)

    def layer_norm(x):
        y = x.astype(F32)
        y = y - y.mean(-1, keepdims=True)
        return (y * jax.lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-6)).astype(x.dtype)

    def batch_norm(x):
        y = x.astype(F32)
        y = (y - y.mean((0, 1, 2))) * jax.lax.rsqrt(y.var((0, 1, 2)) + 1e-5)
        return jax.nn.relu(y).astype(x.dtype)

    def backward(function):
        return lambda x, g: jax.vjp(function, x)[1](g)[0]

    def entropy(x):
        return jax.nn.logsumexp(x.astype(F32), -1)

    for dims in ((16384, 2048), (4096, 8192), (32768, 768)):
        for function in (rms, layer_norm):
            group.add(function, (dims, BF16))
            group.add(backward(function), (dims, BF16), (dims, BF16))
    for dims in ((128, 1024, 1024), (16, 2048, 2048), (16384, 4096)):
        group.add(jax.nn.softmax, (dims, F32))
        group.add(lambda x: jax.nn.softmax(x.astype(F32)).astype(BF16), (dims, BF16))
        group.add(backward(jax.nn.softmax), (dims, F32), (dims, F32))
    for dims in ((8192, 32768), (4096, 50304)):
        group.add(entropy, (dims, BF16))
        group.add(lambda x: jax.grad(lambda y: entropy(y).sum())(x), (dims, BF16))
    for dims in ((128, 56, 56, 64), (128, 14, 14, 1024)):
        group.add(batch_norm, (dims, BF16))
        group.add(backward(batch_norm), (dims, BF16), (dims, BF16))
    return group


def attention_groups():
    group = Group("attention cudnn")
    plain = Group("attention plain")
    for batch, tokens, heads, head in (
        (16, 1024, 16, 128), (8, 2048, 16, 64), (4, 4096, 16, 128), (32, 512, 12, 64),
        (2, 8192, 8, 128), (2, 512, 8, 64),
    ):  # fmt: skip
        shape = ((batch, tokens, heads, head), BF16)
        for causal in (True, False):

            def attend(q, k, v, causal=causal, implementation="cudnn"):
                return jax.nn.dot_product_attention(
                    q, k, v, is_causal=causal, implementation=implementation
                )

            def backward(q, k, v, g, attend=attend):
                return jax.vjp(attend, q, k, v)[1](g)

            group.add(attend, *[shape] * 3)
            if causal:
                group.add(backward, *[shape] * 4)
            if causal and batch * heads * tokens**2 < 1 << 29:
                slow = functools.partial(attend, implementation="xla")
                plain.add(functools.partial(backward, attend=slow), *[shape] * 4)
    yield group
    yield plain
    yield grouped_attention()


def grouped_attention():
    """XLA's own attention, queries sharing keys or not, by length: mostly kernels over rows."""
    group = Group("attention xla")
    for batch, tokens, heads, shared, head in (
        (16, 512, 16, 16, 64), (4, 1024, 16, 4, 64), (2, 2048, 32, 8, 128), (2, 4096, 12, 4, 128),
        (1, 8192, 8, 2, 128),
    ):  # fmt: skip
        queries = ((batch, tokens, heads, head), BF16)
        keys = ((batch, tokens, shared, head), BF16)
        for causal in (True, False):

            def attend(q, k, v, causal=causal):
                return jax.nn.dot_product_attention(q, k, v, is_causal=causal, implementation="xla")

            def backward(q, k, v, g, attend=attend):
                return jax.vjp(attend, q, k, v)[1](g)

            group.add(attend, queries, keys, keys)
            group.add(backward, queries, keys, keys, queries)
    return group


def convolution_groups():
    layers = [
        (128, 56, 64, 64, 3, 1), (128, 28, 128, 128, 3, 1), (128, 14, 256, 256, 3, 1),
        (128, 7, 512, 512, 3, 1), (128, 56, 64, 256, 1, 1), (128, 56, 256, 64, 1, 1),
        (128, 28, 512, 128, 1, 1), (128, 14, 1024, 256, 1, 1), (128, 56, 128, 128, 3, 2),
        (128, 224, 3, 64, 7, 2), (128, 56, 256, 512, 1, 2), (32, 28, 128, 128, 3, 1),
        (256, 32, 96, 192, 3, 1),
    ]  # fmt: skip
    for dtype, chosen in ((BF16, layers), (F32, layers[:10:3])):
        group = Group(f"convolution {dtype.__name__}")
        for batch, size, before, after, window, stride in chosen:

            def convolve(x, w, stride=stride):
                numbers = ("NHWC", "HWIO", "NHWC")
                return jax.lax.conv_general_dilated(
                    x, w, (stride, stride), "SAME", dimension_numbers=numbers
                )

            image, kernel = (batch, size, size, before), (window, window, before, after)
            result = (batch, -(-size // stride), -(-size // stride), after)
            group.add(
                lambda x, w, g, convolve=convolve: (
                    convolve(x, w), *jax.vjp(convolve, x, w)[1](g)
                ),
                (image, dtype), (kernel, dtype), (result, dtype),
            )  # fmt: skip
        yield group


def other_group():
    group = Group("other")
    embedding = ((32768, 2048), BF16)
    group.add(lambda e, t: e[t], embedding, ((16, 1024), jnp.int32))
    group.add(lambda e, t, g: e.at[t].add(g), ((32768, 2048), F32), ((16, 1024), jnp.int32),
              ((16, 1024, 2048), F32))  # fmt: skip
    group.add(lambda e, t, g: e.at[t].add(g), embedding, ((16, 1024), jnp.int32),
              ((16, 1024, 2048), BF16))  # fmt: skip
    group.add(lambda x: jnp.sort(x), ((1 << 22,), F32))
    group.add(lambda x: jnp.sort(x, -1), ((1024, 4096), F32))
    group.add(lambda x: jnp.cumsum(x, -1), ((1024, 4096), F32))
    group.add(lambda x: jax.lax.top_k(x, 8), ((4096, 4096), F32))
    group.add(lambda s: jax.random.normal(jax.random.key(s[0]), (64 * MB // 4,)), ((1,), jnp.int32))
    group.add(
        lambda s: jax.random.bernoulli(jax.random.key(s[0]), 0.5, (16384, 4096)), ((1,), jnp.int32)
    )

    def pool(x):
        window = ((1, 3, 3, 1), (1, 2, 2, 1))
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, *window, "SAME")

    image, pooled = (128, 112, 112, 64), (128, 56, 56, 64)
    group.add(pool, (image, BF16))
    group.add(lambda x, g: jax.vjp(pool, x)[1](g)[0], (image, F32), (pooled, F32))
    return group


def values(inputs):
    """Inputs that look random: products of such numbers draw the power that real ones draw."""

    def made(abstract, seed):
        size = math.prod(abstract.shape)
        if abstract.dtype == jnp.int32:
            return (jax.lax.iota(jnp.int32, size) * 7919 % (5 if size == 1 else 1000)).reshape(
                abstract.shape
            )
        wave = jnp.sin(jax.lax.iota(F32, size) * 12.9898 + seed) * 437.585
        return (2 * (wave - jnp.floor(wave)) - 1).reshape(abstract.shape).astype(abstract.dtype)

    return jax.jit(
        lambda: [[made(a, i + j) for j, a in enumerate(each)] for i, each in enumerate(inputs)]
    )()


def record(out, group):
    begin = time.perf_counter()

    def everything(inputs):
        return [f(*args) for f, args in zip(group.functions, inputs, strict=True)]

    jitted = jax.jit(everything).lower(group.inputs)
    options = {**LABELLED, **group.options} if jax.default_backend() == "gpu" else {}
    compiled = jitted.compile(compiler_options=options)
    seconds = time.perf_counter() - begin
    inputs = values(group.inputs)
    warm = time.perf_counter()
    while time.perf_counter() - warm < 0.4:
        jax.block_until_ready(compiled(inputs))
    data = profiled(lambda: jax.block_until_ready(compiled(inputs)), RUNS)
    kept(out, f"{group.name}.xplane.pb", data)
    kept(out, f"{group.name}.hlo", compiled.as_text())
    print(
        f"{group.name:28s} compiled in {seconds:.1f} s, all {time.perf_counter() - begin:.1f} s",
        flush=True,
    )


def kept(out, name, data):
    with zipfile.ZipFile(out, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name.replace(" ", "_"), data)


def profiled(run, times):
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    with tempfile.TemporaryDirectory() as folder:
        jax.profiler.start_trace(folder, profiler_options=options)
        for i in range(times):
            with jax.profiler.StepTraceAnnotation("train", step_num=i):
                run()
        jax.profiler.stop_trace()
        (path,) = glob.glob(folder + "/plugins/profile/*/*.xplane.pb")
        return Path(path).read_bytes()


def copies(out):
    """To and from pinned host memory, by size."""
    device = jax.devices()[0]
    place = {
        kind: jax.sharding.SingleDeviceSharding(device, memory_kind=kind)
        for kind in ("device", "pinned_host")
    }
    for size in (64 * KB, 1 * MB, 16 * MB, 128 * MB, 1 * GB):
        array = jnp.ones((size // 4,), F32)
        host = jax.block_until_ready(jax.device_put(array, place["pinned_host"]))

        def both(array=array, host=host):
            jax.block_until_ready(jax.device_put(array, place["pinned_host"]))
            jax.block_until_ready(jax.device_put(host, place["device"]))

        both()
        kept(out, f"copies_{size}.xplane.pb", profiled(both, 4))


def launches(out):
    """A chain of small kernels with and without command buffers, and a step that does nothing."""

    def chain(x):
        for _ in range(200):
            x = jax.lax.optimization_barrier(x * 1.0001 + 1)
        return x

    x = jnp.ones((64, 1024), F32)
    lowered = jax.jit(chain).lower(x)
    is_gpu = jax.default_backend() == "gpu"
    arms = {
        "empty": jax.jit(lambda x: x + 1).lower(x).compile(),
        "graphs": lowered.compile(),
        "plain": lowered.compile(compiler_options=LABELLED if is_gpu else {}),
    }
    wall = {}
    for name, compiled in arms.items():
        times = []
        for _ in range(60):
            begin = time.perf_counter()
            jax.block_until_ready(compiled(x))
            times.append(time.perf_counter() - begin)
        wall[name] = round(float(np.median(times[10:])) * 1e6, 2)
        run = lambda compiled=compiled: jax.block_until_ready(compiled(x))  # noqa: E731
        kept(out, f"launches_{name}.xplane.pb", profiled(run, 5))
    print("wall-clock µs:", wall, flush=True)
    kept(out, "launches.json", json.dumps(wall))


# Reading.


def read(source, sink):
    """The zip of a recording as one JSON: programs with microseconds by instruction, and tables."""
    found = {"device": "", "jax": "", "groups": [], "copies": [], "launches": {}}
    with zipfile.ZipFile(source) as archive:
        found |= json.loads(archive.read("facts.json"))
        has_launches = "launches.json" in archive.namelist()  # not with --only
        wall = json.loads(archive.read("launches.json")) if has_launches else {}
        for name in archive.namelist():
            stem, _, kind = name.partition(".")
            if kind != "xplane.pb":
                continue
            profile = _loaded(archive.read(name))
            if stem.startswith("copies_"):
                us = _by_name(profile)
                found["copies"].append({"bytes": int(stem.split("_")[1]), "us": us})
            elif stem.startswith("launches_"):
                arm = stem.split("_")[1]
                found["launches"][arm] = {"wall_us": wall[arm], **_gaps(profile)}
            else:
                text = _without_places(archive.read(f"{stem}.hlo").decode())
                found["groups"].append({"name": stem, "us": _measured(profile), "hlo": text})
    with gzip.GzipFile(sink, "wb", mtime=0) as file:
        file.write(json.dumps(found, indent=0).encode())


def _without_places(text):
    """Program text without where each instruction came from, and without code of its kernels."""
    head, _, rest = text.partition("\nFileNames\n")
    if rest:
        # The tables of files and frames end at the first computation.
        rest = rest[re.search(r"^(?:%|ENTRY)", rest, re.MULTILINE).start() :]
    text = re.sub(r", metadata=\{[^{}]*\}", "", f"{head}\n\n{rest}" if rest else head)
    return re.sub(r'ir = "(?:[^"\\]|\\.)*", name', "name", text)


def _loaded(data):
    from slipstream.sources.load import load

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "host.xplane.pb").write_bytes(data)
        return load(folder)


def _measured(profile):
    from slipstream.costs.measure import measure

    return {m.instruction: round(float(np.median(m.us)), 3) for m in measure(profile)}


def _by_name(profile):
    events = profile.events
    durations = {}
    for row in range(len(events["duration_ps"])):
        name = events.text("name", row)
        durations.setdefault(name, []).append(float(events["duration_ps"][row]) / 1e6)
    return {name: round(float(np.median(each)), 3) for name, each in durations.items()}


def _gaps(profile):
    """Median kernel, and the median and mean time between one kernel's end and the next."""
    events = profile.events
    order = np.argsort(events["start_ps"])
    start, length = events["start_ps"][order] / 1e6, events["duration_ps"][order] / 1e6
    gaps = start[1:] - start[:-1] - length[:-1]
    gaps = gaps[gaps < 50]
    return {
        "kernels": len(order) // 5,
        "kernel_us": round(float(np.median(length)), 3) if len(length) else None,
        "gap_us": round(float(np.median(gaps)), 3) if len(gaps) else None,
        "gap_mean_us": round(float(np.mean(gaps)), 3) if len(gaps) else None,
    }


def groups():
    """Every group, what matters most first: time on a GPU may run out."""
    yield from elementwise_groups()
    yield from reduction_groups()
    first, *others = gemm_groups()
    yield first
    yield from attention_groups()
    yield from convolution_groups()
    yield other_group()
    yield from others


def small(group):
    """The same computations with no dimension above 64, to try the script without a GPU."""
    group.inputs = [
        [jax.ShapeDtypeStruct(tuple(min(d, 64) for d in a.shape), a.dtype) for a in each]
        for each in group.inputs
    ]
    return group


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no group after that")
    parser.add_argument("--only", default="", help="groups whose names contain this")
    parser.add_argument("--read", default="", help="make JSON of a recording")
    parser.add_argument("--tiny", action="store_true", help="small sizes, to try the script")
    options = parser.parse_args()
    if options.read:
        read(options.out, options.read)
        return
    begin = time.perf_counter()
    facts = {"device": jax.devices()[0].device_kind, "jax": jax.__version__}
    kept(options.out, "facts.json", json.dumps(facts))
    if not options.only:
        for measured in (launches, copies):
            try:
                measured(options.out)
            except Exception as error:  # kernels are worth recording all the same
                print(measured.__name__, "failed:", str(error)[:500], flush=True)
    for group in groups():
        if options.only and options.only not in group.name:
            continue
        if time.perf_counter() - begin > options.seconds:
            print(group.name, "left out: no time left", flush=True)
            continue
        try:
            record(options.out, small(group) if options.tiny else group)
        except Exception as error:  # the other groups are worth recording all the same
            print(group.name, "failed:", str(error)[:800], flush=True)
        jax.clear_caches()


if __name__ == "__main__":
    main()
