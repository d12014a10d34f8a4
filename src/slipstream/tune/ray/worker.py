"""A worker on a Ray node: a runner, or the reason why the node can't have one."""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Protocol

from slipstream.compiler.source_tracking import ALWAYS, TargetInputs
from slipstream.compiler.versions import installed_versions
from slipstream.errors import Missing
from slipstream.tune.outcome import Outcome


class ClosingRunner(Protocol):
    """Evaluates candidates on a node, until it is closed."""

    def evaluate(self, candidate: Any, /) -> Outcome: ...

    def close(self) -> None: ...


class RunnerSpec(Protocol):
    """What a node needs to evaluate candidates; picklable."""

    def runner(self, seen: dict[str, Outcome]) -> ClosingRunner:
        """`seen`: outcomes of programs that were already simulated, by hash."""


def versions() -> dict[str, str]:
    """Package versions that must match on every node, since another XLA compiles other programs."""
    try:
        ours = version("slipstream")
    except PackageNotFoundError:
        ours = "without a version"
    found = {name: text for name, text in installed_versions().items() if name != "python"}
    return {"slipstream": ours, **found}


def pack(spec: RunnerSpec) -> bytes:
    """The spec of a node's runner, and the variables of this process that XLA and JAX read."""
    return pickle.dumps((spec, TargetInputs().state()["variables"]))


class NodeRunner:
    """One runner on a node, with the environment of the machine that started the study."""

    def __init__(self, payload: bytes) -> None:
        spec: RunnerSpec
        spec, variables = pickle.loads(payload)
        for name in [name for name in os.environ if name.startswith(ALWAYS)]:
            del os.environ[name]
        os.environ.update({name: text for name, text in variables.items() if text is not None})
        self._seen: dict[str, Outcome] = {}
        self._runner = spec.runner(self._seen)

    def evaluate(self, settings: Any, known: Mapping[str, Any]) -> dict[str, Any]:
        """A candidate's outcome as JSON; `known` are new outcomes of other workers."""
        for program, outcome in known.items():
            self._seen.setdefault(program, Outcome.from_json(outcome))
        found = self._runner.evaluate(settings)
        if not found.is_ok:
            # The log is on that host.
            found = replace(found, note=f"{found.note} [on {socket.gethostname()}]")
        return found.to_json()

    def close(self) -> None:
        self._runner.close()


def worker_class() -> type[Any]:
    """The actor class; local, so that Ray sends it by value instead of importing it by name.

    A node without Slipstream can then run it too, and report what is missing.
    """

    class RayWorker:
        def start(self, wanted: dict[str, str], payload: bytes) -> dict[str, Any]:
            """Make the runner; returns the host, and what is missing there, if anything."""
            import socket
            import sys

            where = {"host": socket.gethostname(), "python": sys.executable}
            try:
                from slipstream.tune.ray.worker import NodeRunner, lacking
            except ImportError as error:
                return {**where, "lacking": f"Slipstream is not installed ({error})"}
            if text := lacking(wanted):
                return {**where, "lacking": text}
            self._bench = NodeRunner(payload)
            return {**where, "lacking": ""}

        def ping(self) -> None:
            """Returns if the worker is alive."""

        def evaluate(self, settings: Any, known: Mapping[str, Any]) -> dict[str, Any]:
            return self._bench.evaluate(settings, known)

        def close(self) -> None:
            """May be called while a candidate is being evaluated; that ends, too."""
            self._bench.close()

    return RayWorker


def lacking(wanted: Mapping[str, str]) -> str:
    """How this node's packages differ from the driver's; empty if they don't."""
    try:
        here = versions()
    except Missing as error:
        return str(error)
    wrong = [name for name, text in wanted.items() if here.get(name) != text]
    return ", ".join(
        f"{name} {here.get(name, 'is missing')} instead of {wanted[name]}" for name in wrong
    )
