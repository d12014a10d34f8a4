"""How a job was launched, for the receipt: enough to launch it again."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_PREFIXES = ("XLA_", "JAX_", "NCCL_", "CUDA_", "TF_", "LIBTPU_")
_QUOTED = re.compile(r"""["']([A-Za-z_][A-Za-z0-9_]{2,})["']""")
_UPPER_CASE = re.compile(r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b")
"""in a help text or a comment, where the code composes the name"""
# TOKENS is a size of a language model, not a secret.
_SECRET = re.compile(r"KEY|TOKEN(?!S)|SECRET|PASSW|CREDENTIAL|AUTH", re.IGNORECASE)
_MAX_SCRIPT_BYTES = 1 << 20


def launch_facts() -> dict[str, Any]:
    """Command, working directory, time, and the environment variables that affect this job."""
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    environment = relevant_variables(os.environ, _script())
    return {"command": sys.argv, "environment": environment, "when": when, "cwd": os.getcwd()}


def relevant_variables(environment: Mapping[str, str], script: str) -> dict[str, str]:
    """Variables of XLA, JAX, NCCL and CUDA, and those that the script names; never a secret."""
    named = {*_QUOTED.findall(script), *_UPPER_CASE.findall(script)}
    return {
        name: value
        for name, value in sorted(environment.items())
        if (name.startswith(_PREFIXES) or name in named) and not _SECRET.search(name)
    }


def _script() -> str:
    try:
        with Path(sys.argv[0]).open(encoding="utf-8", errors="replace") as file:
            return file.read(_MAX_SCRIPT_BYTES)
    except (OSError, IndexError):
        return ""
