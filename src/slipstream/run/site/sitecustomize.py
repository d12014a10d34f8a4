"""Runs when Python starts in a job of `slipstream run`; does nothing until the job imports jax.

Python loads only one `sitecustomize`, so this one first runs the one that it hides. Nothing here
may end the job: errors are noted for the launcher. Beside the request it leaves

    request.json.loaded    a Python of the job ran this file
    request.json.jax       one of them imported jax
    request.json.problem   why the agent did not start
"""

from __future__ import annotations

import _thread
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
    """Finds jax as usual, and starts the agent once jax has been executed.

    Works until then: libraries ask for jax's spec to see whether jax is installed, and an import
    may fail and be tried again. It is never removed: another thread may be walking the finders.
    """

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "jax" or _STARTED.locked():
            return None
        spec = self._found(path, target)
        if spec is not None and spec.loader is not None:
            try:
                _run_after(spec.loader)
            except Exception as error:
                _note(error)
        return spec

    def _found(self, path: Any, target: Any) -> Any:
        """What the finders after this one find; Python has asked the others already."""
        finders = list(sys.meta_path)
        later = finders[finders.index(self) + 1 :] if self in finders else []
        for finder in later:
            find = getattr(finder, "find_spec", None)
            spec = find("jax", path, target) if find is not None else None
            if spec is not None:
                return spec
        return None


class _OurPackage:
    """Finds our own slipstream, if the job's environment has none."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "slipstream":
            return None
        import importlib.util

        init = os.path.join(_HERE, "..", "..", "__init__.py")
        return importlib.util.spec_from_file_location(name, os.path.normpath(init))


def _run_after(loader: Any) -> None:
    """Start the agent when this loader has executed jax."""
    if "exec_module" in vars(loader):
        return  # the loader of an earlier spec, which its finder keeps
    execute = loader.exec_module

    def exec_module(module: Any) -> None:
        execute(module)
        vars(loader).pop("exec_module", None)
        if module.__name__ == "jax":
            _start_once()

    loader.exec_module = exec_module


def _start_once() -> None:
    """Start the agent, unless it was started in this process before."""
    if not _STARTED.acquire(blocking=False):
        return
    try:
        _mark("jax")
        sys.meta_path.append(_OurPackage())
        from slipstream.run.agent.start import start

        start(os.environ["SLIPSTREAM_AGENT"])
    except Exception as error:
        # Whatever it is: it must not fail the job's own import of jax.
        _note(error)


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


def _mark(what: str) -> None:
    """Leave an empty file for the launcher, which says how far Slipstream got in the job."""
    with contextlib.suppress(Exception):
        open(f"{os.environ['SLIPSTREAM_AGENT']}.{what}", "a").close()


def _note(error: BaseException) -> None:
    """Leave a line for the launcher; never on the job's own output."""
    with (
        contextlib.suppress(Exception),
        open(os.environ["SLIPSTREAM_AGENT"] + ".problem", "w") as file,
    ):
        file.write(f"{type(error).__name__}: {error} (Python: {sys.executable})\n")


_HERE = os.path.dirname(os.path.abspath(__file__))
_STARTED = _thread.allocate_lock()
"""taken for good when the agent is started"""
try:
    _chain(_HERE)
finally:
    if os.environ.get("SLIPSTREAM_AGENT"):
        _mark("loaded")
        atexit.register(_end_as_interrupted)
        if "jax" in sys.modules:  # a .pth file or the user's own sitecustomize imported it
            _start_once()
        else:
            sys.meta_path.insert(0, _WhenImported())
