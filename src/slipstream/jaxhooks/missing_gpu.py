"""JAX's CUDA plugin on a machine without a GPU: one line instead of a traceback.

`slipstream[compiler]` brings the plugin for its compiler, without cuDNN, which that does not need.
JAX then finds the plugin, fails to start it, logs that with a traceback, and uses the CPU.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

LOGGER = "jax._src.xla_bridge"
DEVICES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg")
"""one of them is there where an NVIDIA GPU is, /dev/dxg in Windows' Linux"""
_PLUGIN = "jax_plugins.xla_cuda"


def shorten_tracebacks(devices: Sequence[str] = DEVICES) -> None:
    """Let JAX say in one line that it has no GPU, where there is none."""
    if not any(Path(device).exists() for device in devices):
        logging.getLogger(LOGGER).addFilter(_shortened)


def _shortened(record: logging.LogRecord) -> bool:
    plugin = str(record.args[0]) if isinstance(record.args, tuple) and record.args else ""
    if record.exc_info and plugin.startswith(_PLUGIN):
        record.msg = "no GPU here, so JAX leaves out %s: %s"
        record.args = (plugin, record.exc_info[1])
        record.exc_info = None
    return True
