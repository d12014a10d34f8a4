"""A worker on a node of a Ray cluster: a screen, or the reason why there can be none."""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from slipstream.compiler.source_tracking import ALWAYS, TargetInputs
from slipstream.compiler.versions import installed_versions
from slipstream.errors import Missing
from slipstream.tune.outcome import Outcome
from slipstream.tune.search.screen import ScreenSpec


def versions() -> dict[str, str]:
    """What must be the same on every node: another XLA makes other programs."""
    try:
        ours = version("slipstream")
    except PackageNotFoundError:
        ours = "without a version"
    found = {name: text for name, text in installed_versions().items() if name != "python"}
    return {"slipstream": ours, **found}


def pack(recipe: ScreenSpec) -> bytes:
    """The recipe, and the variables of this process that XLA and JAX read."""
    return pickle.dumps((recipe, TargetInputs().state()["variables"]))


class NodeScreen:
    """One screen, on whatever node it is."""

    def __init__(self, parcel: bytes) -> None:
        recipe: ScreenSpec
        recipe, variables = pickle.loads(parcel)
        for name in [name for name in os.environ if name.startswith(ALWAYS)]:
            del os.environ[name]
        os.environ.update({name: text for name, text in variables.items() if text is not None})
        self._seen: dict[str, Outcome] = {}
        self._screen = recipe.screen(self._seen)

    def evaluate(self, settings: Mapping[str, str], news: Mapping[str, Any]) -> dict[str, Any]:
        """An outcome as JSON; `news` are outcomes that others had since the last time."""
        for program, outcome in news.items():
            self._seen.setdefault(program, Outcome.from_json(outcome))
        found = self._screen.evaluate(settings)
        if not found.is_ok:
            # Its log lies there.
            found = replace(found, note=f"{found.note} [on {socket.gethostname()}]")
        return found.to_json()

    def close(self) -> None:
        self._screen.close()


def worker_class() -> type[Any]:
    """Made inside a function so that Ray sends the class whole, not as a name to be imported.

    A node without Slipstream then runs it as well, and can say what it lacks.
    """

    class RayWorker:
        def start(self, wanted: dict[str, str], parcel: bytes) -> dict[str, Any]:
            """Get ready; what is lacking, if anything is, and where this is."""
            import socket
            import sys

            where = {"host": socket.gethostname(), "python": sys.executable}
            try:
                from slipstream.tune.ray.worker import NodeScreen, lacking
            except ImportError as error:
                return {**where, "lacking": f"Slipstream is not there ({error})"}
            if text := lacking(wanted):
                return {**where, "lacking": text}
            self._bench = NodeScreen(parcel)
            return {**where, "lacking": ""}

        def ping(self) -> None:
            """Whether anybody is there."""

        def evaluate(self, settings: Mapping[str, str], news: Mapping[str, Any]) -> dict[str, Any]:
            return self._bench.evaluate(settings, news)

        def close(self) -> None:
            """May be called while a candidate is being tried out: that ends, too."""
            self._bench.close()

    return RayWorker


def lacking(wanted: Mapping[str, str]) -> str:
    """How this node differs from the machine that the study is on; empty if it doesn't."""
    try:
        here = versions()
    except Missing as error:
        return str(error)
    wrong = [name for name, text in wanted.items() if here.get(name) != text]
    return ", ".join(
        f"{name} {here.get(name, 'is not there')} instead of {wanted[name]}" for name in wrong
    )
