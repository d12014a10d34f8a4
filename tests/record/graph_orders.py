"""On a GPU: programs whose CUDA graphs have independent branches, with graphs and without.

    PYTHONPATH=src python tests/record/graph_orders.py OUT.zip [--models moe,parallel] [--tiny]

Each model is compiled several ways in one process, so that all share one set of autotuning results:

    plain         no graphs: every kernel is labelled with its instruction, which is the answer
    graphs        XLA's defaults
    concurrent    the graph has only the dependencies of the buffers: branches side by side
    untuned_…     deterministic and without autotuning, as tests of training scripts run

Writes `<model>.<way>.xplane.pb.gz` and `graphs.json` into OUT.zip, and prints for each graph
recording what `tests/profile/attribution/test_recorded_graphs.py` checks: the share of device time
that is attributed, whether counts per step equal those of `plain`, how far costs are from it; and
how the graphs ran (streams, launches in another order than their nodes', distinct orders).
"""

import argparse
import glob
import gzip
import json
import tempfile
import time
import zipfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from record_models import stripped

PLAIN = {"xla_gpu_enable_command_buffer": ""}
CONCURRENT = {"xla_gpu_command_buffer_scheduling_mode": "CONCURRENT"}
UNTUNED = {"xla_gpu_deterministic_ops": True, "xla_gpu_autotune_level": 0}
WAYS = {
    "plain": PLAIN,
    "graphs": {},
    "concurrent": CONCURRENT,
    "untuned_plain": {**UNTUNED, **PLAIN},
    "untuned_graphs": UNTUNED,
}
STEPS = 4
BF16 = jnp.bfloat16


def weights(shapes, seed=0):
    rng = np.random.default_rng(seed)
    return {k: jnp.asarray(rng.normal(0, 0.02, shape), BF16) for k, shape in shapes.items()}


def norm(x):
    return x * jax.lax.rsqrt(jnp.mean(jnp.square(x.astype(jnp.float32)), -1, keepdims=True)).astype(
        x.dtype
    )


def moe(tokens=8192, width=1024, hidden=2048, experts=8, layers=2):
    """A mixture of experts whose products are separate; experts have several sizes."""
    shapes = {}
    for layer in range(layers):
        shapes[f"router{layer}"] = (width, experts)
        for expert in range(experts):
            size = hidden * (1 + expert % 3)
            shapes[f"up{layer}_{expert}"] = (width, size)
            shapes[f"down{layer}_{expert}"] = (size, width)

    def block(params, layer, x):
        y = norm(x)
        gates = jax.nn.softmax((y @ params[f"router{layer}"]).astype(jnp.float32)).astype(x.dtype)
        for expert in range(experts):
            inner = jax.nn.gelu(y @ params[f"up{layer}_{expert}"])
            x = x + gates[:, expert, None] * (inner @ params[f"down{layer}_{expert}"])
        return x

    def forward(params, x):
        for layer in range(layers):
            x = block(params, layer, x)
        return x

    return forward, weights(shapes), (tokens, width)


def parallel(tokens=4096, width=2048, heads=16, kv_heads=4, layers=3):
    """Separate q, k and v of several sizes; attention and MLP side by side."""
    head = width // heads
    shapes = {}
    for layer in range(layers):
        shapes[f"q{layer}"] = (width, width)
        shapes[f"k{layer}"] = shapes[f"v{layer}"] = (width, kv_heads * head)
        shapes[f"o{layer}"] = (width, width)
        shapes[f"up{layer}"], shapes[f"gate{layer}"] = (width, 3 * width), (width, 3 * width)
        shapes[f"down{layer}"] = (3 * width, width)

    def attention(params, layer, y):
        q = (y @ params[f"q{layer}"]).reshape(4, -1, heads, head)
        k = (y @ params[f"k{layer}"]).reshape(4, -1, kv_heads, head)
        v = (y @ params[f"v{layer}"]).reshape(4, -1, kv_heads, head)
        a = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        return a.reshape(y.shape) @ params[f"o{layer}"]

    def forward(params, x):
        for layer in range(layers):
            y = norm(x)
            mlp = jax.nn.silu(y @ params[f"gate{layer}"]) * (y @ params[f"up{layer}"])
            x = x + attention(params, layer, y) + mlp @ params[f"down{layer}"]
        return x

    return forward, weights(shapes), (tokens, width)


def branches(tokens=2048, width=1024, count=6, depth=3):
    """Chains of products of several lengths that meet at the end: side by side if anything is."""
    shapes = {
        f"w{branch}_{i}": (width, width)
        for branch in range(count)
        for i in range(depth + branch % 2)
    }

    def forward(params, x):
        ends = []
        for branch in range(count):
            y = x
            for i in range(depth + branch % 2):
                y = jnp.tanh(y @ params[f"w{branch}_{i}"])
            ends.append(y)
        return sum(ends)

    return forward, weights(shapes), (tokens, width)


MODELS = {"moe": moe, "parallel": parallel, "branches": branches}
TINY = {
    "moe": dict(tokens=64, width=32, hidden=32, experts=4, layers=1),
    "parallel": dict(tokens=64, width=64, heads=4, kv_heads=2, layers=1),
    "branches": dict(tokens=16, width=16, count=3, depth=2),
}


def step_of(forward):
    def step(params, x):
        def loss(params):
            return jnp.mean(jnp.square(forward(params, x).astype(jnp.float32)))

        value, grads = jax.value_and_grad(loss)(params)
        return jax.tree.map(lambda p, g: p - 1e-3 * g.astype(p.dtype), params, grads), value

    return step


def profiled(compiled, params, x):
    for _ in range(5):
        params, _ = compiled(params, x)
    jax.block_until_ready(params)
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    with tempfile.TemporaryDirectory() as folder:
        jax.profiler.start_trace(folder, profiler_options=options)
        for i in range(STEPS):
            with jax.profiler.StepTraceAnnotation("train", step_num=i):
                params, _ = compiled(params, x)
                jax.block_until_ready(params)
        jax.profiler.stop_trace()
        (path,) = glob.glob(folder + "/plugins/profile/*/*.xplane.pb")
        return Path(path).read_bytes()


def how_it_ran(profile):
    """Streams, launches out of node order, and distinct orders of a graph's kernels."""
    from slipstream.profile.attribution.graph_nodes import is_in_order

    events = profile.events
    launches, orders = {}, {}
    for row in np.argsort(events["start_ps"], kind="stable").tolist():
        if events["graph"][row]:
            key = (int(events["graph"][row]), int(events["correlation"][row]))
            launches.setdefault(key, []).append(int(events["graph_node"][row]))
    for (graph, _), nodes in launches.items():
        orders.setdefault(graph, set()).add(tuple(nodes))
    return {
        "streams": len({int(lane) for lane in events["lane"]}),
        "launches": len(launches),
        "out_of_order": sum(not is_in_order(np.array(nodes)) for nodes in launches.values()),
        "distinct_orders": {graph: len(found) for graph, found in orders.items()},
        "without_numbers": sum(not all(nodes) for nodes in launches.values()),
    }


def compared(path, answer):
    """What attribution makes of a recording with graphs, against the one without."""
    from slipstream.analyses.ops import ops
    from slipstream.costs.extract import extract_costs
    from slipstream.sources.load import load

    profile, truth = load(path), load(answer)
    # Per step: a slow first step is left out as warm-up, in one recording and not in the other.
    counts = [
        {op.instruction: op.per_step_count for op in ops(one).ops} for one in (profile, truth)
    ]
    found, known = ({c.name: c.us for c in _costs(extract_costs(one))} for one in (profile, truth))
    off = sum(abs(found.get(name, 0) - us) for name, us in known.items())
    return {
        "attributed_share": ops(profile).attributed_share,
        "counts_equal": counts[0] == counts[1],
        "missing": sorted(set(counts[1]) - set(counts[0]))[:20],
        "cost_error": off / sum(known.values()),
        "cost_ratio": sum(found.values()) / sum(known.values()),
        "warnings": [f"{w.code}: {w.message}" for w in profile.warnings],
        **how_it_ran(profile),
    }


def _costs(table):
    return [cost for program in table.programs for cost in program.costs.values()]


def record(archive, folder, name, options):
    forward, params, shape = MODELS[name](**options)
    x = jnp.asarray(np.random.default_rng(1).normal(0, 1, shape), BF16)
    lowered = jax.jit(step_of(forward)).lower(params, x)
    is_gpu = jax.default_backend() == "gpu"
    facts, texts = {}, {}
    for way, flags in WAYS.items() if is_gpu else [("plain", {})]:
        begin = time.perf_counter()
        try:
            compiled = lowered.compile(compiler_options=flags)
        except Exception as error:  # one way that fails must not cost the others
            print(name, way, "failed:", str(error)[:500], flush=True)
            continue
        texts[way] = compiled.as_text()
        data = profiled(compiled, params, x)
        path = folder / f"{name}.{way}.xplane.pb.gz"
        with gzip.GzipFile(path, "wb", 9, mtime=0) as file:
            file.write(stripped(data) if is_gpu else data)
        archive.write(path, path.name)
        answer = folder / f"{name}.{way[:8] * ('untuned' in way)}plain.xplane.pb.gz"
        facts[way] = {"flags": flags, "bytes": path.stat().st_size}
        if is_gpu and answer != path and answer.exists():
            plain = "untuned_plain" if "untuned" in way else "plain"
            facts[way]["same_schedule"] = texts[way] == texts[plain]
            facts[way] |= compared(path, answer)
        print(name, way, f"{time.perf_counter() - begin:.1f} s", json.dumps(facts[way]), flush=True)
    return facts


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--tiny", action="store_true", help="small sizes, to try the script")
    options = parser.parse_args()
    device = jax.devices()[0].device_kind
    facts = {"device": device, "jax": jax.__version__, "steps": STEPS, "models": {}}
    with zipfile.ZipFile(options.out, "w") as archive, tempfile.TemporaryDirectory() as folder:
        for name in options.models.split(","):
            sizes = TINY[name] if options.tiny else {}
            facts["models"][name] = record(archive, Path(folder), name, sizes)
        archive.writestr("graphs.json", json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
