"""Slipstream: JAX programs on GPUs at the speed their hardware allows.

Importing this imports neither jax nor numba; names are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slipstream.analyses.ops import Op, Ops, ops
    from slipstream.analyses.summary import Summary, summary
    from slipstream.errors import BadInput, CheckFailed, Missing, SlipstreamError
    from slipstream.profile.profile import Profile
    from slipstream.profile.program import Program
    from slipstream.sources.hlo import read_program
    from slipstream.sources.load import load

__version__ = "0.1.0"

_HOMES = {
    "BadInput": "errors",
    "CheckFailed": "errors",
    "Missing": "errors",
    "Op": "analyses.ops",
    "Ops": "analyses.ops",
    "Profile": "profile.profile",
    "Program": "profile.program",
    "SlipstreamError": "errors",
    "Summary": "analyses.summary",
    "load": "sources.load",
    "ops": "analyses.ops",
    "read_program": "sources.hlo",
    "summary": "analyses.summary",
}

__all__ = [
    "BadInput",
    "CheckFailed",
    "Missing",
    "Op",
    "Ops",
    "Profile",
    "Program",
    "SlipstreamError",
    "Summary",
    "load",
    "ops",
    "read_program",
    "summary",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'slipstream' has no attribute {name!r}")
    return getattr(import_module(f"slipstream.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
