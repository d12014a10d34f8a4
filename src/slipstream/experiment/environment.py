"""How a job was launched, for the receipt: enough to launch it again, and no secrets."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slipstream.masking import kept_variables, mask_command

_QUOTED = re.compile(r"""["']([A-Za-z_][A-Za-z0-9_]{2,})["']""")
_UPPER_CASE = re.compile(r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b")
"""in a help text or a comment, where the code composes the name"""
_MAX_SCRIPT_BYTES = 1 << 20


def launch_facts() -> dict[str, Any]:
    """Command, working directory, time, and the environment variables that affect this job."""
    return {
        "command": mask_command(sys.argv),
        "environment": kept_variables(os.environ),
        "other_variables": other_variables(os.environ, _script()),
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "cwd": os.getcwd(),
    }


def other_variables(environment: Mapping[str, str], script: str) -> list[str]:
    """Names of the variables that the script reads and whose values are not kept."""
    named = {*_QUOTED.findall(script), *_UPPER_CASE.findall(script)}
    return sorted((environment.keys() & named) - kept_variables(environment).keys())


def _script() -> str:
    try:
        with Path(sys.argv[0]).open(encoding="utf-8", errors="replace") as file:
            return file.read(_MAX_SCRIPT_BYTES)
    except (OSError, IndexError):
        return ""
