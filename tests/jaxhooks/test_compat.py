"""Which JAX this is: one that is too new is warned of, one that is too old is left alone."""

import inspect
from dataclasses import replace

import jax
import numpy as np
import pytest

from slipstream.api.optimize import optimize
from slipstream.jaxhooks import compat, private_api
from slipstream.jaxhooks.compat import NEWEST_TESTED, OLDEST_SUPPORTED, JaxChanged
from slipstream.run.agent import start as start_module
from slipstream.run.agent.request import PROFILE, Request
from slipstream.run.run_dir import FAILED, STATUS, read_json

pytestmark = pytest.mark.usefixtures("fresh")
JITTED = jax.jit(lambda x: x * 2)
X = np.arange(4.0, dtype=np.float32)


@pytest.mark.parametrize("version", ["0.12.0.2", "0.13.0", "1.0"])
def test_a_jax_that_is_newer_than_tested_is_warned_of_once(version, monkeypatch, warnings):
    monkeypatch.setattr(jax, "__version__", version)
    private_api.COMPILED.get()
    private_api.LOWERED.get()
    compat.warn_if_untested(version)
    (said,) = warnings()
    assert said.startswith(f"slipstream: JAX {version} is newer than {NEWEST_TESTED}")


@pytest.mark.parametrize("version", [OLDEST_SUPPORTED, "0.10.2", NEWEST_TESTED])
def test_a_jax_that_was_tested_is_not_warned_of(version, monkeypatch, warnings):
    monkeypatch.setattr(jax, "__version__", version)
    private_api.COMPILED.get()
    assert warnings() == []


def test_a_jax_that_is_too_old_is_named_and_left_alone(monkeypatch, warnings, hook_points):
    monkeypatch.setattr(jax, "__version__", "0.9.2")
    before = hook_points()
    step = optimize(JITTED)
    assert np.array_equal(step(X), JITTED(X)) and hook_points() == before
    assert "is off: JAX is 0.9.2; expected 0.10 or newer" in step.report()
    assert len(warnings()) == 1


def test_a_jax_that_is_too_old_is_named_even_where_it_lacks_private_parts(monkeypatch, warnings):
    monkeypatch.setattr(jax, "__version__", "0.4.38")
    part = replace(private_api.COMPILED, path="NotThereYet")
    with pytest.raises(JaxChanged, match="is off: JAX is 0.4.38; expected 0.10 or newer"):
        part.get()
    assert warnings() == []


def test_the_agent_names_a_jax_that_is_too_old(monkeypatch, tmp_path, hook_points):
    monkeypatch.setattr(jax, "__version__", "0.4.38")
    monkeypatch.setattr(start_module, "log_to", lambda path: None)
    before = hook_points()
    request = Request(PROFILE, str(tmp_path)).write(tmp_path / "request.json")
    start_module.start(str(request)).at_exit()
    assert hook_points() == before
    why = read_json(tmp_path / STATUS)["why"]
    assert "is off: JAX is 0.4.38; expected 0.10 or newer" in why
    assert read_json(tmp_path / FAILED)["why"] == why


def test_parameters_may_be_added():
    part = replace(private_api.START_TRACE)
    part._check(lambda log_dir, more: None)
    called = replace(part, is_called=True)
    called._check(lambda log_dir, more=0, *rest, **named: None)
    with pytest.raises(JaxChanged, match=r"takes \(log_dir, more\)"):
        called._check(lambda log_dir, more: None)
    with pytest.raises(ValueError):
        inspect.signature(private_api.HLO_FROM_TEXT.get())
    replace(private_api.HLO_FROM_TEXT, parameters=("text",))._check(private_api.HLO_FROM_TEXT.get())
