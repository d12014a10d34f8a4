"""A process that has not looked at JAX yet, and what JAX has where hooks would be."""

import logging

import jax
import jax._src.compiler
import jax._src.pjit
import pytest
from jax._src.interpreters import pxla

from slipstream.jaxhooks import compat
from slipstream.jaxhooks.hooks import HOOKS


@pytest.fixture
def fresh(monkeypatch):
    """As in a process that has checked nothing yet."""
    HOOKS.uninstall()
    monkeypatch.setattr(compat, "_CHECKED", set())
    monkeypatch.setattr(compat, "_WARNED", set())
    yield
    HOOKS.uninstall()


@pytest.fixture
def warnings(caplog):
    """Slipstream's warnings so far."""
    caplog.set_level(logging.WARNING, logger="slipstream")
    return lambda: [record.getMessage() for record in caplog.records]


@pytest.fixture
def hook_points():
    """What JAX has where hooks would be."""
    return lambda: (
        jax._src.compiler.compile_or_get_cached,
        jax._src.pjit._get_fastpath_data,
        pxla.ExecuteReplicated.__call__,
        pxla.MeshComputation.compile,
        jax.profiler.start_trace,
        jax.distributed.initialize,
    )
