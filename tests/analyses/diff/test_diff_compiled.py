"""Two programs from the real compiler, fused, named and ordered differently by other flags."""

import pytest

from analyses.diff.planting import stretched
from slipstream.analyses.diff.diff import Diff, diff
from slipstream.compiler.compile import compile
from slipstream.machines.topology import machine
from slipstream.profile.profile import Profile
from slipstream.simulate.engine import simulate

TARGET = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

def build(devices):
    mesh = Mesh(np.array(devices), ("data",))
    cut = lambda *spec: NamedSharding(mesh, P(*spec))

    def block(hidden, weights):
        return hidden + jax.nn.gelu(hidden @ weights["up"]) @ weights["down"], None

    def loss(params, batch):
        hidden, _ = jax.lax.scan(block, batch, params)
        return jnp.mean(hidden.astype(jnp.float32) ** 2)

    def step(params, batch):
        value, gradients = jax.value_and_grad(loss)(params, batch)
        return jax.tree.map(lambda p, g: p - 1e-3 * g, params, gradients), value

    shardings = {"up": cut(None, "data", None), "down": cut(None, "data", None)}
    shapes = {"up": (4, 512, 2048), "down": (4, 2048, 512)}
    params = {k: jax.ShapeDtypeStruct(s, jnp.bfloat16) for k, s in shapes.items()}
    batch = jax.ShapeDtypeStruct((64, 256, 512), jnp.bfloat16)
    placed = (shardings, cut("data"))
    jitted = jax.jit(step, in_shardings=placed, out_shardings=(shardings, cut()))
    return jitted, params, batch
"""
# Machine code is not what is looked at, and takes most of the time.
QUICK = {"xla_backend_optimization_level": 0, "xla_gpu_enable_triton_gemm": False}
ONE_BY_ONE = {
    f"xla_gpu_{kind}_combine_threshold_bytes": 1 for kind in ("all_gather", "reduce_scatter")
}
UNSCHEDULED = {
    "xla_gpu_enable_latency_hiding_scheduler": False,
    "xla_gpu_enable_analytical_sol_latency_estimator": False,
}


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> tuple[Profile, Profile]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.delenv("XLA_FLAGS", raising=False)
        target = tmp_path_factory.mktemp("target") / "mlp.py"
        target.write_text(TARGET)

        def step(**flags: object) -> Profile:
            found = compile(f"{target}:build", on="8xH200", flags={**QUICK, **flags})
            return simulate(found, machine("8xH200"))

        return step(), step(**ONE_BY_ONE, **UNSCHEDULED)


@pytest.fixture(scope="module")
def changed(steps: tuple[Profile, Profile]) -> Diff:
    return diff(*steps)


def test_nearly_all_device_time_is_matched(changed):
    assert changed.before.matched_share >= 0.95
    assert changed.after.matched_share >= 0.95
    assert changed.before.fingerprint != changed.after.fingerprint


def test_collectives_that_were_one_are_grouped(changed):
    split = [c for c in changed.changes if c.kind in ("split", "regrouped")]
    assert {c.category for c in split} >= {"all-gather", "reduce-scatter"}


def test_the_verdict_is_that_of_predictions(changed):
    assert changed.verdict.verdict == "slower"
    assert changed.verdict.confidence == 1 and changed.drift is None
    assert changed.moves and changed.reordered > 0


def test_a_planted_regression_is_named_before_what_the_flags_changed(steps, changed):
    before, after = steps
    most = max(abs(c.change_us) for c in changed.changes)
    dots = [c for c in changed.changes if c.kind == "same" and c.category == "matmul"]
    assert len(dots) > 2
    for dot in dots:
        slower = stretched(after, dot.after[0], 1 + 1.5 * most / dot.after_us)
        assert diff(before, slower).changes[0].after == dot.after
