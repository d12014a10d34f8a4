"""Split flags by how they reach XLA.

compiler options   for each compile: most flags, and all of XLA:TPU
XLA_FLAGS          for the whole process: maps, messages, `+NAME` and `-NAME` in lists, aliases
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from slipstream.did_you_mean import did_you_mean
from slipstream.errors import BadInput
from slipstream.flags.catalogue.catalogue import SIMILAR, Catalogue, Flag, installed_catalogue
from slipstream.flags.catalogue.values import (
    flag_value_error,
    normalized,
    option_value_error,
    repaired_value,
)
from slipstream.flags.settings import Setting, SourceLocation

Flags = Mapping[str, object] | str | None
"""by name, or in the syntax of XLA_FLAGS"""

EFFORTS = {
    "optimization_level": int,
    "memory_fitting_level": int,
    "exec_time_optimization_effort": float,
    "memory_fitting_effort": float,
}
"""compile options that are not XLA flags, and their types"""
ONCE_A_PROCESS = frozenset(
    ("xla_gpu_load_autotune_results_from", "xla_dump_to", "xla_gpu_per_fusion_autotune_cache_dir")
)
"""flags that XLA reads once: another value needs another process"""
_NOWHERE = SourceLocation("--flags", 1, 1, None)


@dataclass(frozen=True)
class SplitFlags:
    """Flags as compile options and as XLA_FLAGS."""

    compiler_options: Mapping[str, str] = field(default_factory=dict)
    xla_flags: Mapping[str, str] = field(default_factory=dict)

    @property
    def all(self) -> dict[str, str]:
        return {**self.xla_flags, **self.compiler_options}

    @property
    def text(self) -> str:
        """The value of XLA_FLAGS."""
        return " ".join(f"--{name}={value}" for name, value in self.xla_flags.items())


def split_flags(flags: Flags, catalogue: Catalogue | None = None) -> SplitFlags:
    """Split flags; BadInput for a flag that the installed XLA would reject."""
    given = _parsed(flags)
    if not given:
        return SplitFlags()
    known = catalogue or installed_catalogue()
    options: dict[str, str] = {}
    for_process: dict[str, str] = {}
    for name, value in given.items():
        if name in EFFORTS:
            options[name] = _number(name, value)
            continue
        flag = known.flags.get(name)
        if flag is None or not (flag.in_compiler_options or flag.in_xla_flags):
            raise _refused(name, value, known)
        if _needs_process(flag, value):
            for_process[name] = _checked(flag, value, known.jaxlib_version, is_option=False)
        else:
            options[name] = _checked(flag, value, known.jaxlib_version, is_option=True)
    return SplitFlags(options, for_process)


def tpu_flags(flags: Flags) -> SplitFlags:
    """Flags of XLA:TPU, which libtpu checks; BadInput for those of other places."""
    options: dict[str, str] = {}
    for name, value in _parsed(flags).items():
        if name in EFFORTS:
            options[name] = _number(name, value)
        elif name.startswith("xla_gpu_"):
            raise BadInput(f"{name} is a flag for GPUs and changes nothing on TPUs; omit it")
        elif name.startswith("megascale_"):
            raise BadInput(
                f"{name} is read when a job starts, and changes no program; set it in the job's "
                f"environment: LIBTPU_INIT_ARGS=--{name}={value}"
            )
        elif not name.startswith("xla_"):
            raise BadInput(f"there is no flag {name}; flags of XLA:TPU are called xla_tpu_…")
        else:
            options[name] = value
    return SplitFlags(options)


def _parsed(flags: Flags) -> dict[str, str]:
    if not flags:
        return {}
    if not isinstance(flags, str):
        return {name.removeprefix("--"): _text(value) for name, value in flags.items()}
    found = {}
    try:
        words = shlex.split(flags)
    except ValueError as error:
        raise BadInput(
            f"flags {flags!r} can't be parsed ({error}); expected --name=value …"
        ) from None
    for word in words:
        name, equals, value = word.partition("=")
        found[name.removeprefix("--")] = value if equals else "true"
    return found


def _text(value: object) -> str:
    if isinstance(value, (list, tuple, set, frozenset)):
        return ",".join(str(item) for item in value)
    return str(value)


def _needs_process(flag: Flag, value: str) -> bool:
    changes_list = flag.kind.startswith("repeated") and value.startswith(("+", "-"))
    return not flag.in_compiler_options or changes_list or flag.name in ONCE_A_PROCESS


def _checked(flag: Flag, value: str, version: str, *, is_option: bool) -> str:
    def problem(value: str) -> str | None:
        check = option_value_error if is_option else flag_value_error
        return check(flag, value, version)

    if is_option and flag.kind == "bool":
        value = normalized(flag, value).capitalize()
    if problem(value) is None:
        return value
    meant = repaired_value(flag, value, is_option, version)
    if meant is None or problem(meant) is not None:
        raise BadInput(f"flag {flag.name} {problem(value)}")
    return meant


def _number(name: str, value: str) -> str:
    try:
        return str(EFFORTS[name](value))
    except ValueError:
        raise BadInput(f"{name} is {value!r}; expected a number") from None


def _refused(name: str, value: str, catalogue: Catalogue) -> BadInput:
    from slipstream.flags.catalogue.retired import retirement_of

    found = Setting("xla_flags", name, value, _NOWHERE, f"--{name}={value}")
    past = retirement_of(found, [found], catalogue)
    if past is not None:
        return BadInput(f"{past.message}")
    guess = did_you_mean(name, catalogue.flags, cutoff=SIMILAR)
    return BadInput(
        f"jaxlib {catalogue.jaxlib_version} has no flag {name}; {guess}see: slipstream flags list"
    )
