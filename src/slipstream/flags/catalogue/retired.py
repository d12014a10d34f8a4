"""What became of a flag that this jaxlib refuses, and what to write in its place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from slipstream.flags.catalogue.catalogue import Catalogue, Flag
from slipstream.flags.catalogue.history import history, version_key
from slipstream.flags.catalogue.replacements import Replacement, replacement_of
from slipstream.flags.catalogue.values import flag_value_error, option_value_error
from slipstream.flags.settings import Setting

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
class Retirement:
    """What became of a flag."""

    code: str
    """retired, or unknown where a newer jaxlib has it"""
    message: str
    reason: str
    """the part of the message that says why"""
    fix: str | None


def retirement_of(
    one: Setting, found: Sequence[Setting], catalogue: Catalogue
) -> Retirement | None:
    """What became of a flag that is refused; None if it never was one."""
    known = replacement_of(one.name)
    past = history().flags.get(one.name)
    if known is None and past is None and one.name not in catalogue.removed:
        return None
    version = catalogue.jaxlib_version
    then = (
        "the compile fails" if one.kind == "compiler_options" else "XLA ends the process at start"
    )
    seen = f"jaxlib {version} refuses {one.name}, and {then}."
    first = past.accepted_first if past is not None else None
    if first is not None and version_key(first) > version_key(version):
        reason = f"It came with jaxlib {first}."
        return Retirement("unknown", f"{seen} {reason} Update jaxlib, or leave it out.", reason, "")
    if one.name in catalogue.flags and known is None:
        return None
    reason = (
        known.because
        if known is not None
        else _last_seen(past.accepted_last if past is not None else None)
    )
    instead = _instead(one, found, known, catalogue)
    return Retirement("retired", f"{seen} {reason} {_advice(instead, known)}", reason, instead)


def renamed_form(flag: Flag, value: str, catalogue: Catalogue) -> tuple[str, str] | None:
    """Name and value that took the place of an accepted, but aliased flag."""
    known = replacement_of(flag.name)
    if known is None or known.use is None or flag.in_compiler_options and not flag.is_deprecated:
        return None
    new = catalogue.flags.get(known.use.partition("=")[0])
    if new is None or new.in_xla_flags is False:
        return None
    translated = _translated(new, value, catalogue)
    return None if translated is None else (new.name, translated)


def _advice(instead: str | None, known: Replacement | None) -> str:
    if instead:
        return f"Write {instead}"
    if instead is None and known is not None and known.use:
        return f"Look at {known.use}: slipstream flags explain {known.use.partition('=')[0]}"
    return "Leave it out."


def _translated(flag: Flag, value: str, catalogue: Catalogue) -> str | None:
    """An old flag's value in the words of the new one."""
    # XLA reads a plain `false` of the pipelining flags as `default`, not as `off`.
    words = {"true": ["true", "1", "on"], "false": ["false", "0", "default", "off"]}
    for word in [value, *words.get(value.lower(), [])]:
        if flag_value_error(flag, word, catalogue.jaxlib_version) is None:
            return word
    return None


def _last_seen(last: str | None) -> str:
    return f"Its last release was jaxlib {last}." if last else "It was removed."


def _instead(
    one: Setting, found: Sequence[Setting], known: Replacement | None, catalogue: Catalogue
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
    flag = catalogue.flags.get(name)
    if not equals and flag is not None:
        translated = _translated(flag, value, catalogue)
        return None if translated is None else _written(one, name, translated, catalogue)
    return _written(one, name, new_value, catalogue)


def _written(one: Setting, name: str, value: str, catalogue: Catalogue) -> str | None:
    flag = catalogue.flags.get(name)
    if flag is None:
        return None
    version = catalogue.jaxlib_version
    if one.kind == "compiler_options":
        is_fine = flag.in_compiler_options and option_value_error(flag, value, version) is None
        return f'"{name}": "{value}"' if is_fine else None
    is_fine = flag.in_xla_flags is not False and flag_value_error(flag, value, version) is None
    return f"--{name}={value}" if is_fine else None


def _async_list(one: Setting, found: Sequence[Setting], catalogue: Catalogue) -> str | None:
    """One list stands for all the flags: the first of them becomes it, the others go."""
    switched_off = list(_switched_off(one, found))
    if switched_off and switched_off[0] is not one:
        return ""
    kinds = dict.fromkeys(_ASYNC[other.name] for other in switched_off)
    return _written(one, _ASYNC_LIST, ",".join(kinds), catalogue)


def _switched_off(one: Setting, found: Sequence[Setting]) -> Iterator[Setting]:
    for other in found:
        is_here = other.kind == one.kind and other.group == one.group
        if is_here and other.name in _ASYNC and (other.value or "true").lower() in _OFF:
            yield other
