"""Modules for trainers say what to install, and nothing else imports the trainers."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

import slipstream
from slipstream.errors import Missing

PACKAGES = {"keras": "pip install keras", "levanter": "pip install marin-levanter"}


@pytest.mark.parametrize("name", PACKAGES)
def test_a_trainer_that_is_missing(name):
    if find_spec(name) is not None:
        pytest.skip(f"{name} is installed; tests/stacks/test_trainers.py trains with it")
    with pytest.raises(Missing, match=f"slipstream.{name} needs .*: {PACKAGES[name]}"):
        getattr(slipstream, name)


def test_only_the_trainers_own_module_imports_it():
    code = "import slipstream, sys; slipstream.maxtext; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    modules = set(done.stdout.split())
    assert "slipstream.maxtext" in modules, done.stderr
    assert modules & {"keras", "levanter", "maxtext", "flax", "jax"} == set()
