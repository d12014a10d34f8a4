"""Track the files and environment variables that a Python target reads while it is built.

Next time, their contents tell whether the cached result is still valid, without importing the
target or jax.
"""

from __future__ import annotations

import hashlib
import os
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from slipstream.compiler.worker.process import TPU_VARIABLES

ALWAYS = ("JAX_", "XLA_", "LIBTPU_", "NVTE_", "TF_")
"""prefixes of variables that always count as inputs"""
_OURS = frozenset(("JAX_PLATFORMS", "TF_CPP_MIN_LOG_LEVEL", "TF_CPP_VMODULE", *TPU_VARIABLES))
"""variables that we set for the worker, whatever the user's values"""
_NOT_INPUTS = ("/proc/", "/sys/", "/dev/", "/etc/")


@dataclass(frozen=True)
class TargetInputs:
    """Names of files and variables; `state` reads their contents."""

    files: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()

    def state(self) -> dict[str, Any]:
        """The contents of all files and variables, for a key."""
        names = sorted({*self.variables, *(n for n in os.environ if n.startswith(ALWAYS))} - _OURS)
        return {
            "files": {file: _content(file) for file in self.files},
            "variables": {name: os.environ.get(name) for name in names},
        }

    def joined(self, other: TargetInputs) -> TargetInputs:
        return TargetInputs(
            tuple(sorted({*self.files, *other.files})),
            tuple(sorted({*self.variables, *other.variables})),
        )

    def to_json(self) -> dict[str, list[str]]:
        return {"files": list(self.files), "variables": list(self.variables)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> TargetInputs:
        files, variables = (data.get(name) for name in ("files", "variables"))
        return TargetInputs(_texts(files), _texts(variables))


def _texts(found: object) -> tuple[str, ...]:
    return tuple(one for one in found if isinstance(one, str)) if isinstance(found, list) else ()


@dataclass
class Seen:
    """What was read; what an earlier request read counts too, as the process may have kept it."""

    files: set[str] = field(default_factory=set)
    variables: set[str] = field(default_factory=set)


class _Hook:
    """Python's hooks for audits can't be removed, so there is one, which is mostly off."""

    def __init__(self) -> None:
        self.is_installed = False
        self.seen: Seen | None = None

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and self.seen is not None:
            _note_file(self.seen, *args[:2])


_hook = _Hook()


@contextmanager
def tracking(seen: Seen) -> Iterator[None]:
    """Collect what is read; only for a worker process, since the hook stays installed."""
    if not _hook.is_installed:
        sys.addaudithook(_hook)
        _hook.is_installed = True
    environ = type(os.environ)
    plain = environ.__getitem__

    def noted(self: Any, name: Any) -> Any:
        seen.variables.add(str(name))
        return plain(self, name)

    _hook.seen = seen
    environ.__getitem__ = noted  # type: ignore[method-assign]
    try:
        yield
    finally:
        _hook.seen = None
        environ.__getitem__ = plain  # type: ignore[method-assign]


def inputs_of(seen: Seen) -> TargetInputs:
    """The tracked inputs, without those of Python, installed packages and this process."""
    modules = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    files = {*seen.files, *(os.path.abspath(file) for file in modules if file)}
    return TargetInputs(
        tuple(sorted(file for file in files if _is_input(file))),
        tuple(sorted(seen.variables - _OURS)),
    )


def _note_file(seen: Seen, path: Any, mode: Any) -> None:
    is_name = isinstance(path, (str, os.PathLike))
    if is_name and (mode is None or "r" in mode) and "+" not in (mode or ""):
        seen.files.add(os.path.abspath(os.fspath(path)))


def _is_input(file: str) -> bool:
    if file.startswith(_NOT_INPUTS) or file.endswith((".pyc", ".so")):
        return False
    return not file.startswith(_installed()) and os.path.isfile(file)


@cache
def _installed() -> tuple[str, ...]:
    """The folders of packages, whose versions are already part of the key."""
    paths = {*sysconfig.get_paths().values(), str(Path(__file__).resolve().parents[1])}
    paths -= {sysconfig.get_paths()["data"], sysconfig.get_paths()["scripts"]}
    return tuple(f"{path}{os.sep}" for path in sorted(paths))


def _content(file: str) -> str | None:
    try:
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()
    except (OSError, ValueError):
        return None
