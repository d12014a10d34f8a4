"""Jobs that compute nothing: what is lowered for the target, what is run, and what results are."""

import json
import os
import subprocess
import sys

import pytest

JOB = """
import json, resource
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from slipstream.jaxhooks.custom_calls import compilable_elsewhere
from slipstream.jaxhooks.dry_run import DryRun
from slipstream.jaxhooks.hooks import HOOKS
from slipstream.jaxhooks.target_device import TargetGpu

class Listener:
    calls = []
    def wants(self, program): return True
    def on_compile(self, program): pass
    def on_call(self, program, arguments, run):
        self.calls.append(program)
        return run()

dry = DryRun(TargetGpu("NVIDIA H200", (9, 0), 132, 91900))
dry.install()
HOOKS.add(Listener())
cut = NamedSharding(Mesh(np.array(jax.devices()), ("data",)), P("data"))
host_mb = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10

before = host_mb()
init = jax.jit(lambda key: jax.random.normal(key, (1 << 18, 1 << 12)), out_shardings=cut)
weights = init(jax.random.key(0))

@jax.jit
def step(weights, x, key, count):
    attended = jax.nn.dot_product_attention(x, x, x, implementation="cudnn")
    product = attended.reshape(x.shape[0], -1).astype(jnp.float32) @ weights[:4096]
    return weights + 1, jnp.mean(product), key, count + 1, product

x = jax.device_put(np.ones((4, 8, 8, 64), jnp.bfloat16), cut)
key, counts = jax.random.key(1), []
for count in range(4):
    weights, loss, key, counted, product = step(weights, x, key, count)
    counts.append(float(loss))
step_of = [one for one in Listener.calls if one.name == "jit_step"]
found = {
    "weights": [weights.shape, str(weights.dtype), list(weights.sharding.spec)],
    "grown_mb": host_mb() - before,
    "losses": counts,
    "count": int(counted),
    "key": str(key.dtype),
    "product": [product.shape, float(abs(product).max()), list(product.sharding.spec)],
    "calls": len(step_of),
    "is_for_gpu": b"CustomSPMDPartitioning" in step_of[0].stablehlo,
    "elsewhere": [
        name in compilable_elsewhere(step_of[0].stablehlo)
        for name in (b"CustomSPMDPartitioning", b"Slipstream.Partitioned")
    ],
    "flops": 1e9 * dry.cpu_seconds(step_of[0].original),
    "platform": [jax.default_backend(), jax.devices()[0].platform, jax.device_count("gpu")],
    "kind": jax.local_devices(backend="cuda")[0].device_kind,
    "run": int(jax.jit(lambda n: n * 7)(6)),
    "ahead_of_time": float(step.lower(weights, x, key, 0).compile()(weights, x, key, 0)[1]),
}
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found():
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "4"}
    done = subprocess.run(
        [sys.executable, "-c", JOB], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def test_a_model_takes_no_memory(found):
    # 4 GiB of weights, and as much in each step's results.
    assert found["weights"] == [[1 << 18, 1 << 12], "float32", ["data"]]
    assert found["grown_mb"] < 1000


def test_results_have_their_shapes_and_shardings_and_plain_values(found):
    assert found["losses"] == [1, 1, 1, 1]
    assert found["count"] == 0 and found["key"] == "key<fry>"
    assert found["product"] == [[4, 4096], 0, ["data"]]


def test_programs_with_products_are_lowered_for_the_target_and_seen_at_every_call(found):
    assert found["is_for_gpu"] and found["calls"] == 4
    # The product of (4, 4096) and (4096, 4096), each element a multiplication and an addition.
    assert found["flops"] == pytest.approx(2 * 4 * 4096 * 4096)


def test_small_programs_are_run(found):
    assert found["run"] == 42


def test_programs_compiled_ahead_of_time_are_not_run_either(found):
    assert found["ahead_of_time"] == 1


def test_a_program_saved_for_another_process_holds_how_calls_are_divided(found):
    assert found["elsewhere"] == [False, True]


def test_devices_look_like_the_targets(found):
    assert found["platform"] == ["gpu", "gpu", 4] and found["kind"] == "NVIDIA H200"
