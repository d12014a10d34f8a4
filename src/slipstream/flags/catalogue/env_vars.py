"""Environment variables that JAX, XLA's runtime, NCCL and CUDA read; the data is in env_vars.json.

`LIBTPU_INIT_ARGS` is one of them: flags for the TPU runtime, `--name=value` separated by spaces.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

DATA = Path(__file__).with_name("env_vars.json")


@dataclass(frozen=True)
class EnvVar:
    """One environment variable."""

    name: str
    kind: str
    """bool, int, float, string, path, enum, list"""
    default: str | None
    """None if the library decides at run time"""
    doc: str
    source: str
    values: tuple[str, ...] = ()
    """the allowed values, if they are a closed list"""


def _read() -> dict[str, EnvVar]:
    rows = json.loads(DATA.read_text(encoding="utf-8"))
    settings = [EnvVar(**{**row, "values": tuple(row.get("values", ()))}) for row in rows]
    return {setting.name: setting for setting in settings}


ENV_VARS: dict[str, EnvVar] = _read()
