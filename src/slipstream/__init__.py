"""Slipstream: JAX programs on GPUs at the speed their hardware allows.

Importing this imports neither jax nor numba; names are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slipstream.analyses.ops import Op, Ops, ops
    from slipstream.analyses.prediction import Prediction
    from slipstream.analyses.summary import Summary, summary
    from slipstream.compiler.compile import compile
    from slipstream.costs.coverage import Coverage
    from slipstream.costs.extract import extract_costs
    from slipstream.costs.files import read_costs
    from slipstream.costs.table import CostTable
    from slipstream.errors import BadInput, CheckFailed, Missing, SlipstreamError
    from slipstream.loop.capture import capture
    from slipstream.loop.optimize import optimize
    from slipstream.loop.receipt import Receipt
    from slipstream.machines.machine import Machine
    from slipstream.machines.topology import machine
    from slipstream.profile.profile import Profile
    from slipstream.profile.program import Program
    from slipstream.simulate.prediction import predict
    from slipstream.sources.hlo import read_program
    from slipstream.sources.load import load

__version__ = "0.1.0"

_HOMES = {
    "BadInput": "errors",
    "CheckFailed": "errors",
    "CostTable": "costs.table",
    "Coverage": "costs.coverage",
    "Machine": "machines.machine",
    "Missing": "errors",
    "Op": "analyses.ops",
    "Ops": "analyses.ops",
    "Prediction": "analyses.prediction",
    "Profile": "profile.profile",
    "Program": "profile.program",
    "Receipt": "loop.receipt",
    "SlipstreamError": "errors",
    "Summary": "analyses.summary",
    "capture": "loop.capture",
    "compile": "compiler.compile",
    "extract_costs": "costs.extract",
    "load": "sources.load",
    "machine": "machines.topology",
    "ops": "analyses.ops",
    "optimize": "loop.optimize",
    "predict": "simulate.prediction",
    "read_costs": "costs.files",
    "read_program": "sources.hlo",
    "summary": "analyses.summary",
}

__all__ = [
    "BadInput",
    "CheckFailed",
    "CostTable",
    "Coverage",
    "Machine",
    "Missing",
    "Op",
    "Ops",
    "Prediction",
    "Profile",
    "Program",
    "Receipt",
    "SlipstreamError",
    "Summary",
    "capture",
    "compile",
    "extract_costs",
    "load",
    "machine",
    "ops",
    "optimize",
    "predict",
    "read_costs",
    "read_program",
    "summary",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'slipstream' has no attribute {name!r}")
    return getattr(import_module(f"slipstream.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
