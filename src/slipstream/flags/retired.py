"""What became of a flag that this jaxlib refuses, and what to write in its place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from slipstream.flags.catalogue import Catalogue
from slipstream.flags.environment import Found
from slipstream.flags.history import Replacement, history, replacement_of
from slipstream.flags.values import flag_complaint, option_complaint

_OFF = frozenset(("false", "0"))
_ASYNC_LIST = "xla_gpu_disable_async_collectives"
_ASYNC = {
    "xla_gpu_enable_async_all_reduce": "ALLREDUCE",
    "xla_gpu_enable_async_all_gather": "ALLGATHER",
    "xla_gpu_enable_async_reduce_scatter": "REDUCESCATTER",
    "xla_gpu_enable_async_collective_permute": "COLLECTIVEPERMUTE",
    "xla_gpu_enable_async_collective_broadcast": "COLLECTIVEBROADCAST",
    "xla_gpu_enable_async_all_to_all": "ALLTOALL",
    "xla_gpu_enable_async_collectives": "ALLCOLLECTIVES",
}
"""flags of 2023 that switched a collective's async form on, and the kind they are now called"""
_GRAPH_LEVELS = frozenset(("xla_gpu_graph_level", "xla_gpu_cuda_graph_level"))


@dataclass(frozen=True)
class Fate:
    """What became of a flag."""

    code: str
    """retired, or unknown where a newer jaxlib has it"""
    message: str
    fix: str | None


def fate(one: Found, found: Sequence[Found], catalogue: Catalogue) -> Fate | None:
    """What became of a flag that is not in the catalogue; None if it never was one."""
    known = replacement_of(one.name)
    past = history().flags.get(one.name)
    version = catalogue.jaxlib_version
    then = (
        "the compile fails" if one.kind == "compiler_options" else "XLA ends the process at start"
    )
    seen = f"jaxlib {version} refuses {one.name}, and {then}."
    if known is None and past is None and one.name not in catalogue.removed:
        return None
    first = past.accepted_first or past.first if past is not None else None
    if first is not None and version_key(first) > version_key(version):
        return Fate("unknown", f"{seen} It came with jaxlib {first}: update, or leave it out.", "")
    because = known.because if known is not None else _last_seen(past and past.accepted_last)
    instead = _instead(one, found, known, catalogue)
    advice = "Leave it out." if instead == "" else f"Write {instead}" if instead else ""
    if known is not None and known.use and not instead:
        advice = "Leave it out: that is the default." if instead == "" else f"See {known.use}."
    return Fate("retired", f"{seen} {because} {advice}".strip(), instead)


def version_key(version: str) -> tuple[int, ...]:
    """Sorts versions: 0.9.0 before 0.12.0.1."""
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _last_seen(last: str | None) -> str:
    return f"Its last release was jaxlib {last}." if last else "It was removed."


def _instead(
    one: Found, found: Sequence[Found], known: Replacement | None, catalogue: Catalogue
) -> str | None:
    """The text that takes the flag's place; empty where nothing has to."""
    value = "true" if one.value is None else one.value
    if one.name in _ASYNC:
        return _async_list(one, found, catalogue) if value.lower() in _OFF else ""
    if one.name in _GRAPH_LEVELS:
        return _written(one, "xla_gpu_enable_command_buffer", "", catalogue) if value == "0" else ""
    if known is None or known.use is None:
        return ""
    name, equals, new_value = known.use.partition("=")
    return _written(one, name, new_value if equals else value, catalogue)


def _written(one: Found, name: str, value: str, catalogue: Catalogue) -> str | None:
    flag = catalogue.flags.get(name)
    if flag is None:
        return None
    if one.kind == "compiler_options":
        is_fine = flag.in_compiler_options and option_complaint(flag, value) is None
        return f'"{name}": "{value}"' if is_fine else None
    is_fine = flag.in_xla_flags is not False and flag_complaint(flag, value) is None
    return f"--{name}={value}" if is_fine else None


def _async_list(one: Found, found: Sequence[Found], catalogue: Catalogue) -> str | None:
    """One list stands for all the flags: the first of them becomes it, the others go."""
    switched_off = list(_switched_off(one, found))
    if switched_off and switched_off[0] is not one:
        return ""
    kinds = dict.fromkeys(_ASYNC[other.name] for other in switched_off)
    return _written(one, _ASYNC_LIST, ",".join(kinds), catalogue)


def _switched_off(one: Found, found: Sequence[Found]) -> Iterator[Found]:
    for other in found:
        is_here = other.kind == one.kind and other.group == one.group
        if is_here and other.name in _ASYNC and (other.value or "true").lower() in _OFF:
            yield other
