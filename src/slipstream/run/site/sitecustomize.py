"""Runs when Python starts in a job of `slipstream run`; does nothing until the job imports jax.

Python loads only one `sitecustomize`, so this one first runs the one that it hides. Nothing here
may end the job: errors are noted for the launcher.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from typing import Any


def _chain(here: str) -> None:
    """Remove this folder from the path, and run the sitecustomize that it hid."""
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or os.curdir) != here]
    import importlib.machinery
    import importlib.util

    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


class _WhenImported:
    """Finds jax as usual, and starts the agent once jax is imported."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "jax":
            return None
        import importlib.util

        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            _run_after(spec.loader)
        return spec


class _OurPackage:
    """Finds our own slipstream, if the job's environment has none."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "slipstream":
            return None
        import importlib.util

        init = os.path.join(_HERE, "..", "..", "__init__.py")
        return importlib.util.spec_from_file_location(name, os.path.normpath(init))


def _run_after(loader: Any) -> None:
    execute = loader.exec_module

    def exec_module(module: Any) -> None:
        execute(module)
        try:
            sys.meta_path.append(_OurPackage())
            from slipstream.run.agent.agent import start

            start(os.environ["SLIPSTREAM_AGENT"])
        except Exception as error:
            # Whatever it is: it must not fail the job's own import of jax.
            _note(error)

    loader.exec_module = exec_module


def _end_as_interrupted() -> None:
    """End a job that was interrupted by SIGINT with that signal.

    Python forgets to if code is compiled after the signal, by an import in our last thread for
    example. Registered first, so that it runs last.
    """
    if getattr(sys, "last_type", None) is KeyboardInterrupt and "slipstream.run" in sys.modules:
        import signal

        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)


def _note(error: BaseException) -> None:
    """Leave a line for the launcher; never on the job's own output."""
    try:
        with open(os.environ["SLIPSTREAM_AGENT"] + ".problem", "w") as file:
            file.write(f"{type(error).__name__}: {error} (Python: {sys.executable})\n")
    except Exception:
        pass


_HERE = os.path.dirname(os.path.abspath(__file__))
try:
    _chain(_HERE)
finally:
    if os.environ.get("SLIPSTREAM_AGENT") and "jax" not in sys.modules:
        sys.meta_path.insert(0, _WhenImported())
        atexit.register(_end_as_interrupted)
