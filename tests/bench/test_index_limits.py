"""Integers that index something are drawn from all of its rows, and no more."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from slipstream.bench.bench import Bench
from slipstream.bench.index_limits import index_limits

WORDS = jax.ShapeDtypeStruct((1000, 4), jnp.float32)
PLACES = jax.ShapeDtypeStruct((50, 4), jnp.float32)
TEXT = jax.ShapeDtypeStruct((2, 9), jnp.int32)


def loss(words, places, text):
    h = words[text[:, :-1]] + places[: text.shape[1] - 1]
    logits = h @ words.T
    picked = jnp.take_along_axis(logits, text[:, 1:, None], -1)
    return jnp.mean(jax.nn.logsumexp(logits, -1) - picked[..., 0])


def in_layers(words, places, text):
    """As above, with everything in a checkpoint in a scan in a jit."""

    def layer(h, _):
        return h + jax.checkpoint(loss)(words, places, text), None

    return jax.jit(lambda: jax.lax.scan(layer, 0.0, None, length=2)[0])()


def twice(words, places, text):
    return words[text].sum() + places[text].sum()


def compared(words, places, text):
    return (text == 3).sum() + words.sum()


def counted(words, places, text):
    """An integer that is computed with, but indexes nothing."""
    return words.sum() * text.sum().astype(jnp.float32)


@pytest.mark.parametrize(
    ("function", "limits"),
    [
        (loss, {2: 1000}),
        (jax.grad(loss), {2: 1000}),
        (in_layers, {2: 1000}),
        (twice, {2: 50}),
        (compared, {}),
        (counted, {}),
    ],
)
def test_the_limit_is_the_size_of_what_is_indexed(function, limits):
    traced = jax.jit(function).trace(WORDS, PLACES, TEXT)
    assert index_limits(traced.jaxpr) == limits


def test_a_trace_that_can_t_be_analysed_gives_no_limits(monkeypatch, capsys):
    def fails(*_):
        raise AttributeError("dimension_numbers")

    monkeypatch.setattr("slipstream.bench.index_limits._followed", fails)
    assert index_limits(jax.jit(loss).trace(WORDS, PLACES, TEXT).jaxpr) == {}
    assert "could not be analysed" in capsys.readouterr().err


def test_a_bench_draws_integers_below_their_limits(tmp_path):
    (tmp_path / "model.py").write_text(
        "import jax, jax.numpy as jnp\n"
        "def build(devices):\n"
        "    words = jax.ShapeDtypeStruct((1000, 4), jnp.float32)\n"
        "    text = jax.ShapeDtypeStruct((64, 64), jnp.int32)\n"
        "    count = jax.ShapeDtypeStruct((64,), jnp.int32)\n"
        "    return jax.jit(lambda w, t, n: w[t].sum() + n.sum()), words, text, count\n"
    )
    bench = Bench()
    bench.start(str(tmp_path / "model.py"), "build")
    _, text, count = (np.asarray(one.on_devices()) for one in bench._inputs)
    assert 900 < text.max() < 1000 and text.min() >= 0
    assert count.max() == 7
