"""Arguments that are made up: the same each time, and such that a step makes numbers of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from slipstream.bench.bench import Bench
from slipstream.bench.synthetic_inputs import RECIPES, synthetic_inputs

STEP = """
import jax, jax.numpy as jnp

def build(devices, function=None):
    place = jax.sharding.SingleDeviceSharding(devices[0])
    shape = lambda *size: jax.ShapeDtypeStruct(size, jnp.float32, sharding=place)
    weights = {"up": shape(300, 8), "down": shape(8, 300)}
    state = {"first": weights, "params": weights, "second": weights}

    def step(state, batch):
        hidden = batch @ state["params"]["up"] @ state["params"]["down"]
        moved = jax.tree.map(lambda p, m, v: p - m / (jnp.sqrt(v) + 1), *(
            state[name] for name in ("params", "first", "second")))
        return {**state, "params": moved}, jnp.mean(ROOT(hidden))

    return jax.jit(step, donate_argnums=0), state, shape(4, 300)
"""


def shapes():
    place = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    one = jax.ShapeDtypeStruct((40, 30), jnp.float32, sharding=place)
    count = jax.ShapeDtypeStruct((), jnp.int32, sharding=place)
    weights = {"a": {"kernel": one}, "b": {"kernel": one}}
    return {"moments": {"mu": weights, "nu": weights}, "params": weights, "count": count}


def test_of_subtrees_that_are_alike_only_the_weights_keep_both_signs():
    paths, _ = jax.tree_util.tree_flatten_with_path(shapes())
    for recipe, signed in ((0, {"mu", "nu", "params"}), (1, {"params"}), (2, set())):
        arrays = [np.asarray(one.on_devices()) for one in synthetic_inputs(shapes(), recipe)]
        again = [np.asarray(one.on_devices()) for one in synthetic_inputs(shapes(), recipe)]
        assert all(np.array_equal(a, b) for a, b in zip(arrays, again, strict=True))
        found = {
            name
            for (path, _), array in zip(paths, arrays, strict=True)
            for name in ("mu", "nu", "params")
            if f"'{name}'" in str(path) and (array < 0).any()
        }
        assert found == signed
        assert all(np.isfinite(array).all() for array in arrays)


@pytest.mark.parametrize("name", ["norm1", "ln_f", "scale", "layernorm"])
def test_scales_of_norms_are_near_one_and_their_moments_are_not(name):
    one = jax.ShapeDtypeStruct((40,), jnp.float32)
    weights = {name: {"weight": one, "bias": one}, "dense": one}
    state = {"params": weights, "mu": weights, "nu": weights}
    paths, _ = jax.tree_util.tree_flatten_with_path(state)
    for recipe in range(RECIPES):
        made = synthetic_inputs(state, recipe)
        near_one = {
            tuple(part.key for part in path)
            for (path, _), leaf in zip(paths, made, strict=True)
            if np.abs(np.asarray(leaf.on_devices()) - 1).max() < 0.1
        }
        assert near_one == {("params", name, "weight")}


@pytest.mark.parametrize(
    ("root", "recipe", "is_finite"),
    [("jnp.abs", 1, True), ("jnp.sqrt", 2, True), ("lambda x: x / 0", 2, False)],
)
def test_recipes_are_tried_until_the_step_returns_numbers(root, recipe, is_finite, tmp_path):
    file = tmp_path / "step.py"
    file.write_text(STEP.replace("ROOT", f"({root})"))
    bench = Bench()
    bench.start(str(file), "build")
    bench.compile("baseline", {})
    assert bench.check("baseline") == {"difference": 0.0, "is_finite": is_finite}
    expected = [one.on_devices() for one in synthetic_inputs(bench._abstract, recipe)]
    made = [one.on_devices() for one in bench._inputs]
    assert all(np.array_equal(a, b) for a, b in zip(expected, made, strict=True))
    assert bench.time("baseline")["seconds"] > 0


def test_weights_that_the_first_step_ruins_are_noticed_in_the_second(tmp_path):
    file = tmp_path / "step.py"
    file.write_text(STEP.replace("ROOT", "(jnp.abs)"))
    bench = Bench()
    bench.start(str(file), "build")
    bench.compile("arm", {})
    assert bench._run("arm", 0)[1]  # the loss of the first step, from the weights as given
    assert bench.find_recipe("arm")
    assert bench.times("arm", 3)["is_finite"]


def test_large_results_are_compared_by_values_spread_over_them(tmp_path, monkeypatch):
    monkeypatch.setattr("slipstream.bench.bench._SAMPLE", 100)
    file = tmp_path / "step.py"
    file.write_text(STEP.replace("ROOT", "(jnp.abs)"))
    bench = Bench()
    bench.start(str(file), "build")
    bench.compile("baseline", {})
    bench.check("baseline")
    assert {len(one) for one in bench._expected} == {1, 96}
    bench._expected = [one + 1 for one in bench._expected]
    assert bench.check("baseline")["difference"] > 0.1


def test_values_don_t_depend_on_how_an_array_is_sharded():
    devices = np.array(jax.devices())
    mesh = jax.sharding.Mesh(devices, ("data",))
    places = [
        None,
        jax.sharding.SingleDeviceSharding(devices[0]),
        jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data")),
    ]
    for dtype in (jnp.float32, jnp.bfloat16, jnp.int32, jnp.bool_, jnp.float8_e4m3fn):
        shapes = [jax.ShapeDtypeStruct((16, 8), dtype, sharding=place) for place in places]
        made = [synthetic_inputs(one, 0)[0].on_devices() for one in shapes]
        for one, place in zip(made, places, strict=True):
            assert one.dtype == dtype and np.array_equal(one, made[0])
            assert place is None or one.sharding == place
        assert len(np.unique(np.asarray(made[0], np.float32))) > 1


def test_random_keys_and_arrays_in_host_memory_are_made_too():
    place = jax.sharding.SingleDeviceSharding(jax.devices()[0], memory_kind="pinned_host")
    host = jax.ShapeDtypeStruct((4,), jnp.float32, sharding=place)
    keys = jax.eval_shape(lambda: (jax.random.key(0), jax.random.split(jax.random.key(0), 3)))
    made = [one.on_devices() for one in synthetic_inputs((host, *keys), 0)]
    assert made[0].sharding.memory_kind == "pinned_host"
    assert [(one.shape, one.dtype) for one in made[1:]] == [(one.shape, one.dtype) for one in keys]
    assert jax.random.bits(made[1]).shape == ()
