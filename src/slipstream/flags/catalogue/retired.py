"""What happened to a flag that this jaxlib rejects, and what to use instead."""

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
"""flags of 2023 that made a collective asynchronous, and the kind's name in the list of today"""
_GRAPH_LEVELS = frozenset(("xla_gpu_graph_level", "xla_gpu_cuda_graph_level"))


@dataclass(frozen=True)
class Retirement:
    """What happened to a flag."""

    code: str
    """`retired`, or `unknown` if only a newer jaxlib has it"""
    message: str
    reason: str
    """the part of the message that explains why"""
    fix: str | None


def retirement_of(
    setting: Setting, settings: Sequence[Setting], catalogue: Catalogue
) -> Retirement | None:
    """What happened to a flag that is rejected; None if it never existed."""
    known = replacement_of(setting.name)
    past = history().flags.get(setting.name)
    if known is None and past is None and setting.name not in catalogue.removed:
        return None
    version = catalogue.jaxlib_version
    then = "the compile fails" if setting.kind == "compiler_options" else "XLA aborts at startup"
    seen = f"jaxlib {version} rejects {setting.name}, and {then}."
    first = past.accepted_first if past is not None else None
    if first is not None and version_key(first) > version_key(version):
        reason = f"It was added in jaxlib {first}."
        return Retirement("unknown", f"{seen} {reason} Update jaxlib, or remove it.", reason, None)
    if setting.name in catalogue.flags and known is None:
        return None
    reason = (
        known.because
        if known is not None
        else _last_seen(past.accepted_last if past is not None else None)
    )
    instead = _instead(setting, settings, known, catalogue)
    return Retirement("retired", f"{seen} {reason} {_advice(instead, known)}", reason, instead)


def renamed_form(flag: Flag, value: str, catalogue: Catalogue) -> tuple[str, str] | None:
    """The current name and value of a flag that is accepted under its old name."""
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
        return f"Use {instead}"
    if instead is None and known is not None and known.use:
        return f"See {known.use}: slipstream flags explain {known.use.partition('=')[0]}"
    return "Remove it."


def _translated(flag: Flag, value: str, catalogue: Catalogue) -> str | None:
    """An old flag's value as the new flag spells it."""
    # XLA reads a plain `false` of the pipelining flags as `default`, not as `off`.
    words = {"true": ["true", "1", "on"], "false": ["false", "0", "default", "off"]}
    for word in [value, *words.get(value.lower(), [])]:
        if flag_value_error(flag, word, catalogue.jaxlib_version) is None:
            return word
    return None


def _last_seen(last: str | None) -> str:
    return f"The last jaxlib with it was {last}." if last else "It was removed."


def _instead(
    setting: Setting, settings: Sequence[Setting], known: Replacement | None, catalogue: Catalogue
) -> str | None:
    """The replacement text; empty if the flag can be removed."""
    value = "true" if setting.value is None else setting.value
    if setting.name in _ASYNC:
        return _async_list(setting, settings, catalogue) if value.lower() in _OFF else ""
    if setting.name in _GRAPH_LEVELS:
        return (
            _written(setting, "xla_gpu_enable_command_buffer", "", catalogue)
            if value == "0"
            else ""
        )
    if known is None or known.use is None:
        return ""
    name, equals, new_value = known.use.partition("=")
    flag = catalogue.flags.get(name)
    if not equals and flag is not None:
        translated = _translated(flag, value, catalogue)
        return None if translated is None else _written(setting, name, translated, catalogue)
    return _written(setting, name, new_value, catalogue)


def _written(setting: Setting, name: str, value: str, catalogue: Catalogue) -> str | None:
    flag = catalogue.flags.get(name)
    if flag is None:
        return None
    version = catalogue.jaxlib_version
    if setting.kind == "compiler_options":
        is_fine = flag.in_compiler_options and option_value_error(flag, value, version) is None
        return f'"{name}": "{value}"' if is_fine else None
    is_fine = flag.in_xla_flags is not False and flag_value_error(flag, value, version) is None
    return f"--{name}={value}" if is_fine else None


def _async_list(setting: Setting, settings: Sequence[Setting], catalogue: Catalogue) -> str | None:
    """One list replaces all these flags: the first becomes the list, the others are removed."""
    switched_off = list(_switched_off(setting, settings))
    if switched_off and switched_off[0] is not setting:
        return ""
    kinds = dict.fromkeys(_ASYNC[other.name] for other in switched_off)
    return _written(setting, _ASYNC_LIST, ",".join(kinds), catalogue)


def _switched_off(setting: Setting, settings: Sequence[Setting]) -> Iterator[Setting]:
    for other in settings:
        is_here = other.kind == setting.kind and other.group == setting.group
        if is_here and other.name in _ASYNC and (other.value or "true").lower() in _OFF:
            yield other
