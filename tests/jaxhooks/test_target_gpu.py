"""Tracing cuDNN attention for GPUs that are not here."""

import jax
import jax.numpy as jnp
import pytest

from slipstream.jaxhooks import compat, private_api
from slipstream.jaxhooks.target_gpu import answering_for

pytestmark = pytest.mark.usefixtures("fresh")
PARTS = (
    private_api.CUDNN_VERSION,
    private_api.CAPABILITY_AT_LEAST,
    private_api.CAPABILITY_EQUAL,
)
HOPPER, AMPERE = (9, 0), (8, 0)


def attention(head: int):
    """The calls that an attention with this head dimension is lowered to."""
    shape = jax.ShapeDtypeStruct((2, 128, 4, head), jnp.bfloat16)

    def attend(q, k, v):
        return jax.nn.dot_product_attention(q, k, v, implementation="cudnn")

    traced = jax.jit(attend).trace(shape, shape, shape)
    return traced.lower(lowering_platforms=("cuda",)).as_text()


def test_attention_lowers_for_the_target_without_cudnn():
    before = [part.get() for part in PARTS]
    with answering_for(HOPPER, 91900):
        assert "__cudnn$fmhaSoftmax" in attention(256)
    assert [part.get() for part in PARTS] == before


def test_what_the_target_cannot_do_is_jaxs_own_error():
    with pytest.raises(NotImplementedError, match="head dim must be <= 128"):  # noqa: SIM117
        with answering_for(AMPERE, 91900):
            attention(192)
    with pytest.raises(NotImplementedError, match="10.3 requires cuDNN"):  # noqa: SIM117
        with answering_for((10, 3), 91000):
            attention(64)


def test_other_functions_are_lowered_where_jax_has_changed(monkeypatch, warnings):
    def missing(part, locate=compat._locate):
        if part is private_api.CAPABILITY_EQUAL:
            raise AttributeError(part.path)
        return locate(part)

    monkeypatch.setattr(compat, "_locate", missing)
    before = private_api.CUDNN_VERSION.get()
    with answering_for(HOPPER, 91900):
        assert private_api.CUDNN_VERSION.get() is before
    assert "is_cuda_compute_capability_equal is missing in JAX" in warnings()[0]
