"""Which JAX this is, and whether a private part of it is as Slipstream expects.

    PrivatePart  ── where it is, what it must look like, which feature needs it and for what
    part.get()   ── the part itself, or `JaxChanged`, which names all of that

Parts are listed in `private_api`. Each is checked when it is first used.
"""

from __future__ import annotations

import inspect
import logging
import re
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from typing import Any

from slipstream.errors import Missing

log = logging.getLogger("slipstream")

OLDEST_SUPPORTED = "0.10"
NEWEST_TESTED = "0.12.0.1"

_CHECKED: set[PrivatePart] = set()
"""parts that were found as expected in this process: each is checked once"""
_WARNED: set[str] = set()
"""warnings of this process: each is given once"""


class Feature(StrEnum):
    """What Slipstream does with private parts of JAX, as messages call it."""

    WATCHING = "watching compiled programs"
    RECOMPILING = "compiling a running program again"
    ADOPTING = "measuring programs that were compiled earlier"
    GIVING_WAY = "giving way to the job's own profiler sessions"
    CONSENSUS = "agreement between processes"
    LAYOUTS = "timing process layouts"
    STABLEHLO = "reading StableHLO"
    COMPILING = "compiling for GPUs that are not here"
    INSPECTING = "finding bounds before a compile"
    TARGET_GPU = "lowering cuDNN attention and Pallas kernels for GPUs that are not here"
    MEMORIES = "keeping the memory kinds of shardings for GPUs that are not here"
    DRY_RUN = "running a job without computing"
    PARTITIONING = "dividing cuDNN attention of launched programs among devices"
    PALLAS = "counting the work of Pallas kernels"
    HLO = "importing and printing HLO"
    TRACEBACKS = "keeping Slipstream out of the job's tracebacks"


class JaxChanged(Missing):
    """A private part of JAX is missing or changed, so the feature that needs it is off."""

    def __init__(self, feature: str, name: str, seen: str, expected: str) -> None:
        self.feature, self.name, self.seen, self.expected = feature, name, seen, expected
        super().__init__(
            f"{feature} is off: {name} {seen}; expected {expected}; "
            f"Slipstream supports JAX {OLDEST_SUPPORTED} to {NEWEST_TESTED}"
        )


@dataclass(frozen=True, eq=False)
class PrivatePart:
    """A function, class or object of JAX that is no public API."""

    module: str
    path: str
    feature: Feature
    purpose: str
    parameters: tuple[str, ...] = ()
    """parameters that it must have; more are fine"""
    is_called: bool = False
    """whether Slipstream calls it itself: then it must not require parameters unknown to us"""
    attributes: tuple[str, ...] = ()
    """attributes that it must have"""
    instance_attributes: tuple[str, ...] = ()
    """attributes that its instances must have, where the class doesn't show them"""

    @property
    def name(self) -> str:
        return f"{self.module}.{self.path}"

    def get(self) -> Any:
        """The part as it is now; JaxChanged if it is missing or not as expected."""
        if self not in _CHECKED:
            check_version(self.feature)  # first: a JAX that is too old lacks many parts
        try:
            _, value = _locate(self)
        except (ImportError, AttributeError):
            raise self._changed("is missing") from None
        if self not in _CHECKED:
            self._check(value)
            _CHECKED.add(self)
        return value

    def replace(self, value: Any) -> None:
        """Put something else in its place."""
        owner, _ = _locate(self)
        setattr(owner, self.path.rpartition(".")[2], value)

    def of(self, instance: Any) -> Any:
        """The instance, if it has the attributes that instances must have."""
        for name in self.instance_attributes:
            if not hasattr(instance, name):
                raise self._changed(f"has instances without {name}")
        return instance

    def _check(self, value: Any) -> None:
        for name in self.attributes:
            if not hasattr(value, name):
                raise self._changed(f"has no {name}")
        if not (self.parameters or self.is_called):
            return
        try:
            found = inspect.signature(value).parameters
        except (TypeError, ValueError):
            return  # C++ functions don't tell their parameters
        unknown = [n for n in found if n not in self.parameters and _is_required(found[n])]
        if any(name not in found for name in self.parameters) or (self.is_called and unknown):
            raise self._changed(f"takes ({', '.join(found)})")

    def _changed(self, seen: str) -> JaxChanged:
        wanted = "it to be there"
        if self.parameters:
            wanted = f"the parameters {', '.join(self.parameters)}"
        elif self.attributes or self.instance_attributes:
            wanted = f"the attributes {', '.join(self.attributes + self.instance_attributes)}"
        elif self.is_called:
            wanted = "a function without parameters"
        return JaxChanged(self.feature, self.name, f"{seen} in JAX {jax_version()}", wanted)


def _locate(part: PrivatePart) -> tuple[Any, Any]:
    """The object that holds the part, and the part."""
    jax_version()  # first: jaxlib's modules can't be imported before jax
    owner: Any = None
    value: Any = import_module(part.module)
    for step in part.path.split("."):
        owner, value = value, getattr(value, step)
    return owner, value


def _is_required(parameter: inspect.Parameter) -> bool:
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return parameter.default is parameter.empty and parameter.kind not in variadic


def jax_version() -> str:
    """The version of the installed JAX; Missing where it can't be imported."""
    try:
        return str(import_module("jax").__version__)
    except ImportError as error:
        raise Missing(
            f"this needs jax, which can't be imported here ({error}); "
            "install it with: pip install 'jax[cuda13]'"
        ) from None


def check_version(feature: str) -> None:
    """JaxChanged for a JAX that is too old; a warning, once, for one that was not tested."""
    found = jax_version()
    if is_too_old(found):
        raise JaxChanged(feature, "JAX", f"is {found}", f"{OLDEST_SUPPORTED} or newer")
    warn_if_untested(found)


def is_too_old(version: str) -> bool:
    return _numbers(version) < _numbers(OLDEST_SUPPORTED)


def warn_if_untested(version: str) -> None:
    """Warn once per process about a JAX that is newer than any that was tested."""
    if text := untested(version):
        warn_once(text)


def untested(version: str) -> str | None:
    """What to warn of where a JAX is newer than any that was tested."""
    if _numbers(version) <= _numbers(NEWEST_TESTED):
        return None
    return (
        f"JAX {version} is newer than {NEWEST_TESTED}, the newest that Slipstream was tested "
        "with; a feature that this JAX breaks turns itself off and says so"
    )


def warn_once(text: str) -> None:
    """A warning that this process has not given yet."""
    if text not in _WARNED:
        _WARNED.add(text)
        log.warning("slipstream: %s", text)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))[:4]
