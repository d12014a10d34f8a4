"""What is found out about a function before it is compiled: bytes of arguments, and its batch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from slipstream.compiler.inspection import StepWork
from slipstream.compiler.worker import inspecting
from slipstream.compiler.worker.inspecting import inspect_built
from slipstream.machines.targets import target_config
from slipstream.machines.topology import machine

CONFIG = target_config(machine("H100"))
DEVICES = jax.devices()[:1]
NO_BATCH = StepWork(text="no argument looks like a batch: all are state, keys or numbers")


def shaped(*shape, dtype=jnp.float32, **options):
    return jax.ShapeDtypeStruct(shape, dtype, **options)


def inspected(function, *arguments, traces=True, **options):
    jitted = jax.jit(function, **options)
    return inspect_built(lambda devices: (jitted, *arguments), DEVICES, {}, CONFIG, traces=traces)


def work(function, *arguments, **options):
    return StepWork(**inspected(function, *arguments, **options)["work"])


PARAMS = {"w": shaped(8, 4), "b": shaped(4)}
TOKENS = shaped(16, 33, dtype=jnp.int32)


def trained(params, batch):
    total = sum(jnp.sum(leaf) for leaf in jax.tree.leaves(batch)).astype(jnp.float32)
    return jax.tree.map(lambda leaf: leaf * total, params), total


def test_tokens_of_a_batch():
    text = "argument 1, int32[16,33]"
    assert work(trained, PARAMS, TOKENS, donate_argnums=0) == StepWork(16, 16 * 33, text)
    assert work(trained, PARAMS, TOKENS) == StepWork(16, 16 * 33, text)  # returned, so state


def test_inputs_and_labels_count_once():
    batch = {"inputs": TOKENS, "labels": TOKENS}
    found = work(trained, PARAMS, batch)
    assert (found.samples, found.tokens) == (16, 16 * 33)
    assert found.text == "argument 1, int32[16,33], argument 1, int32[16,33]"


def test_images_are_samples():
    batch = (shaped(16, 8, 8, 3), shaped(16, dtype=jnp.int32))
    found = work(trained, PARAMS, batch)
    assert (found.samples, found.tokens) == (16, None)


def test_keys_numbers_and_weights_are_no_batch():
    def step(params, key, rate):
        return jax.random.normal(key, ()) + rate + sum(map(jnp.sum, jax.tree.leaves(params)))

    assert work(step, PARAMS, jax.random.PRNGKey(0), 0.1) == NO_BATCH
    assert work(step, PARAMS, jax.random.key(0), 0.1) == NO_BATCH


def test_bytes_on_one_device():
    mesh = Mesh(np.array(DEVICES), ("data",))
    kept = NamedSharding(mesh, P(), memory_kind="pinned_host")

    def step(params, far, unused):
        return params["w"] + far[0], params["b"]

    arguments = (PARAMS, shaped(8, sharding=kept), shaped(100))
    found = inspected(step, *arguments, donate_argnums=0)
    params = (8 * 4 + 4) * 4
    assert found["arguments_bytes"] == found["donated_bytes"] == found["outputs_bytes"] == params
    # What is unused is known only after tracing.
    quick = inspected(step, *arguments, traces=False)
    assert (quick["arguments_bytes"], quick["is_traced"]) == (params + 400, False)


@pytest.mark.parametrize("where", [None, (None, P("data")), ({"w": P("data"), "b": None}, None)])
def test_shardings_stated_for_whole_trees(where):
    mesh = Mesh(np.array(DEVICES), ("data",))

    def placed(spec):
        return NamedSharding(mesh, spec) if isinstance(spec, P) else spec

    stated = jax.tree.map(placed, where, is_leaf=lambda one: isinstance(one, P))
    options = {} if where is None else {"in_shardings": stated}
    found = inspected(trained, PARAMS, TOKENS, traces=False, **options)
    assert found["arguments_bytes"] == (8 * 4 + 4) * 4 + 16 * 33 * 4


def test_a_trace_that_can_not_be_analysed_gives_no_bounds(monkeypatch, capsys):
    def changed(jaxpr, donated):
        raise KeyError("num_consts")

    monkeypatch.setattr(inspecting, "least_work", changed)
    found = inspected(trained, PARAMS, TOKENS)
    assert found["flops"] == {} and found["work"]["tokens"] == 16 * 33
    assert found["arguments_bytes"] == (8 * 4 + 4) * 4 + 16 * 33 * 4
    assert "there are no bounds" in capsys.readouterr().err
