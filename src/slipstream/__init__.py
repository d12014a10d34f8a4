"""Slipstream: JAX programs on GPUs at the speed their hardware allows.

Importing this imports neither jax nor numba; names are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from slipstream.inline import Inline

if TYPE_CHECKING:
    from slipstream.analyses.bounds import Bounds, bounds
    from slipstream.analyses.collectives import Collectives, collectives
    from slipstream.analyses.diff.diff import Diff, diff
    from slipstream.analyses.gaps import Gaps, gaps
    from slipstream.analyses.hosts import Hosts, hosts
    from slipstream.analyses.memory import Memory, memory
    from slipstream.analyses.network.network import Network, network
    from slipstream.analyses.op_groups import OpGroup
    from slipstream.analyses.ops import Op, Ops, ops
    from slipstream.analyses.overlap import Overlap, overlap
    from slipstream.analyses.roofline import Roofline, roofline
    from slipstream.analyses.slack import Slack, slack
    from slipstream.analyses.soundness import Soundness, soundness
    from slipstream.analyses.summary import Summary, summary
    from slipstream.api.capture import capture
    from slipstream.api.notebook_progress import NotebookProgress
    from slipstream.api.optimize import optimize
    from slipstream.compiler.compile import compile
    from slipstream.compiler.order import Order, read_order
    from slipstream.costs.coverage import Coverage
    from slipstream.costs.extract import extract_costs
    from slipstream.costs.files import read_costs
    from slipstream.costs.table import CostTable
    from slipstream.diagnosis.diagnose import diagnose
    from slipstream.errors import BadInput, CheckFailed, Missing, SlipstreamError
    from slipstream.experiment.receipt import Receipt
    from slipstream.fleet.fleet import Fleet
    from slipstream.fleet.read import read_fleet
    from slipstream.machines.machine import Machine
    from slipstream.machines.topology import machine
    from slipstream.outputs.perfetto.trace import write_perfetto
    from slipstream.plan.space.annotations import Divisor, Range
    from slipstream.profile.profile import Profile
    from slipstream.profile.program import Program
    from slipstream.results.diagnosis import Diagnosis
    from slipstream.results.prediction import Prediction
    from slipstream.scheduling.comparison import schedule
    from slipstream.simulate.engine import Simulation, simulation
    from slipstream.simulate.prediction import predict
    from slipstream.sources.hlo.reader import read_program
    from slipstream.sources.load import load

__version__ = "0.1.0"

_HOMES = {
    "BadInput": "errors",
    "Bounds": "analyses.bounds",
    "CheckFailed": "errors",
    "Collectives": "analyses.collectives",
    "CostTable": "costs.table",
    "Coverage": "costs.coverage",
    "Diagnosis": "results.diagnosis",
    "Diff": "analyses.diff.diff",
    "Divisor": "plan.space.annotations",
    "Fleet": "fleet.fleet",
    "Gaps": "analyses.gaps",
    "Hosts": "analyses.hosts",
    "Machine": "machines.machine",
    "Memory": "analyses.memory",
    "Missing": "errors",
    "Network": "analyses.network.network",
    "NotebookProgress": "api.notebook_progress",
    "Op": "analyses.ops",
    "OpGroup": "analyses.op_groups",
    "Ops": "analyses.ops",
    "Order": "compiler.order",
    "Overlap": "analyses.overlap",
    "Prediction": "results.prediction",
    "Profile": "profile.profile",
    "Program": "profile.program",
    "Range": "plan.space.annotations",
    "Receipt": "experiment.receipt",
    "Roofline": "analyses.roofline",
    "Simulation": "simulate.engine",
    "Slack": "analyses.slack",
    "SlipstreamError": "errors",
    "Soundness": "analyses.soundness",
    "Summary": "analyses.summary",
    "bounds": "analyses.bounds",
    "capture": "api.capture",
    "collectives": "analyses.collectives",
    "compile": "compiler.compile",
    "diagnose": "diagnosis.diagnose",
    "diff": "analyses.diff.diff",
    "extract_costs": "costs.extract",
    "gaps": "analyses.gaps",
    "hosts": "analyses.hosts",
    "load": "sources.load",
    "machine": "machines.topology",
    "memory": "analyses.memory",
    "network": "analyses.network.network",
    "ops": "analyses.ops",
    "optimize": "api.optimize",
    "overlap": "analyses.overlap",
    "predict": "simulate.prediction",
    "read_costs": "costs.files",
    "read_fleet": "fleet.read",
    "read_order": "compiler.order",
    "read_program": "sources.hlo.reader",
    "roofline": "analyses.roofline",
    "schedule": "scheduling.comparison",
    "simulation": "simulate.engine",
    "slack": "analyses.slack",
    "soundness": "analyses.soundness",
    "summary": "analyses.summary",
    "write_perfetto": "outputs.perfetto.trace",
}

__all__ = [
    "BadInput",
    "Bounds",
    "CheckFailed",
    "Collectives",
    "CostTable",
    "Coverage",
    "Diagnosis",
    "Diff",
    "Divisor",
    "Fleet",
    "Gaps",
    "Hosts",
    "Machine",
    "Memory",
    "Missing",
    "Network",
    "NotebookProgress",
    "Op",
    "OpGroup",
    "Ops",
    "Order",
    "Overlap",
    "Prediction",
    "Profile",
    "Program",
    "Range",
    "Receipt",
    "Roofline",
    "Simulation",
    "Slack",
    "SlipstreamError",
    "Soundness",
    "Summary",
    "bounds",
    "capture",
    "collectives",
    "compile",
    "diagnose",
    "diff",
    "extract_costs",
    "gaps",
    "hosts",
    "load",
    "machine",
    "memory",
    "network",
    "ops",
    "optimize",
    "overlap",
    "predict",
    "read_costs",
    "read_fleet",
    "read_order",
    "read_program",
    "roofline",
    "schedule",
    "simulation",
    "slack",
    "soundness",
    "summary",
    "write_perfetto",
]


_TRAINERS = ("keras", "levanter", "maxtext")
"""modules that import the library of the same name"""


def __getattr__(name: str) -> Any:
    if name in _TRAINERS:
        return import_module(f"slipstream.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'slipstream' has no attribute {name!r}")
    return getattr(import_module(f"slipstream.{_HOMES[name]}"), name)


def _draw(result: object) -> str | None:
    """A result as HTML, for notebooks."""
    from slipstream.outputs.html.inline import inline_html

    return inline_html(result)


Inline.draw = staticmethod(_draw)


def __dir__() -> list[str]:
    return sorted(__all__)
