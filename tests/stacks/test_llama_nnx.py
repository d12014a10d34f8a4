"""examples/llama_nnx.py learns, and its layouts compute the same."""

import json
import subprocess
import sys
from importlib.util import find_spec

import pytest

import layout_losses


@pytest.mark.skipif(
    find_spec("flax") is None, reason="not installed: flax; make test-stacks runs it"
)
def test_it_learns_and_a_mesh_computes_the_same_as_one_device():
    command = [sys.executable, layout_losses.__file__, "llama_nnx"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert found["script"][-1] < found["script"][0] - 0.3
    assert found["script"][:2] == pytest.approx(found["one"], rel=1e-3)
    assert found["mixed"] == pytest.approx(found["one"], rel=1e-3)
    assert max(found["mixed gradients"]) < 0.05
