"""A CUDA plugin that can't start is one line where there is no GPU, and a traceback elsewhere."""

import logging
import os
import subprocess
import sys

from slipstream.jaxhooks import missing_gpu

JOB = """
import jax
from slipstream.jaxhooks.missing_gpu import shorten_tracebacks
shorten_tracebacks(devices=())
try:
    jax.devices()
except RuntimeError as error:
    print(error)
"""


def logged(name: str) -> logging.LogRecord:
    try:
        raise RuntimeError("Unable to load cuDNN. Is it installed?")
    except RuntimeError:
        text = "Jax plugin configuration error: Exception when calling %s.initialize()"
        record = logging.getLogger(name).makeRecord(
            name, logging.ERROR, "xla_bridge.py", 1, text, ("jax_plugins.xla_cuda13",),
            sys.exc_info(),
        )  # fmt: skip
    logging.getLogger(name).filter(record)
    return record


def test_without_a_gpu_it_is_one_line_and_with_one_it_is_left(monkeypatch, tmp_path):
    monkeypatch.setattr(missing_gpu, "LOGGER", "one")
    missing_gpu.shorten_tracebacks(devices=[str(tmp_path)])
    assert logged("one").exc_info is not None
    missing_gpu.shorten_tracebacks(devices=[str(tmp_path / "none")])
    record = logged("one")
    assert record.exc_info is None
    assert record.getMessage() == (
        "no GPU here, so JAX leaves out jax_plugins.xla_cuda13: Unable to load cuDNN. Is it "
        "installed?"
    )


def test_jax_itself_prints_no_traceback():
    """With cuDNN or without, and with a GPU or without."""
    env = {**os.environ, "JAX_PLATFORMS": "cuda,cpu"}
    done = subprocess.run([sys.executable, "-c", JOB], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
