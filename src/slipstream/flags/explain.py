"""Explain one flag or variable, and compare the flags of two jaxlib releases."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from slipstream.did_you_mean import did_you_mean
from slipstream.errors import BadInput
from slipstream.flags.catalogue.catalogue import Catalogue, Flag, default_catalogue
from slipstream.flags.catalogue.env_vars import ENV_VARS, EnvVar
from slipstream.flags.catalogue.history import FlagHistory, catalogue_of, history
from slipstream.flags.catalogue.libtpu import (
    LibtpuCatalogue,
    LibtpuHistory,
    libtpu_catalogue,
    libtpu_history,
    libtpu_jaxlibs,
    libtpu_names,
)
from slipstream.flags.catalogue.libtpu_flag import LibtpuFlag
from slipstream.flags.catalogue.replacements import REPLACEMENTS, Replacement, replacement_of

MOST_SUGGESTED = 3
_NOTES = Path(__file__).with_name("notes.json")


@dataclass(frozen=True)
class Note:
    """What a flag is for, with sources."""

    what: str
    helps: str | None
    hurts: str | None
    sources: tuple[str, ...]
    is_judged: bool = False
    """whether helps and hurts are our own judgement; the sources only say what the flag does"""


@dataclass(frozen=True)
class Explanation:
    """What is known about a flag or an environment variable; unknown parts are None."""

    name: str
    jaxlib_version: str
    """the release of `flag`"""
    flag: Flag | None
    """None if this jaxlib doesn't have it"""
    history: FlagHistory | None
    is_current: bool
    """whether the newest harvested release has it"""
    note: Note | None
    replacement: Replacement | None
    setting: EnvVar | None
    libtpu_version: str
    """the release of `libtpu_flag`"""
    libtpu_flag: LibtpuFlag | None
    """None if this libtpu doesn't have it"""
    libtpu_history: LibtpuHistory | None


@dataclass(frozen=True)
class DefaultChange:
    """One flag whose default differs between two releases."""

    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True)
class PlaceChange:
    """One flag that is now set elsewhere, has another type, or was deprecated."""

    name: str
    changes: tuple[str, ...]
    """`XLA_FLAGS rejects it`, `deprecated`, …"""


@dataclass(frozen=True)
class FlagDiff:
    """What changed from one jaxlib or libtpu to another, sorted by name."""

    old: str
    new: str
    removed: tuple[str, ...]
    added: tuple[Flag | LibtpuFlag, ...]
    defaults: tuple[DefaultChange, ...]
    places: tuple[PlaceChange, ...]
    library: str = "jaxlib"


@cache
def notes() -> Mapping[str, Note]:
    """All notes, by flag."""
    data = json.loads(_NOTES.read_text(encoding="utf-8"))
    return {
        name: Note(
            entry["what"],
            entry.get("helps"),
            entry.get("hurts"),
            tuple(data["sources"][key] for key in entry["sources"]),
            entry.get("is_judged", False),
        )
        for name, entry in data["flags"].items()
    }


def explain(
    name: str, catalogue: Catalogue | None = None, libtpu: LibtpuCatalogue | None = None
) -> Explanation:
    """Explain a flag of XLA or libtpu, or an environment variable."""
    name = name.removeprefix("--").partition("=")[0]
    known = catalogue if catalogue is not None else default_catalogue()
    tpu = libtpu if libtpu is not None else libtpu_catalogue(known.jaxlib_version)
    past = history().flags.get(name)
    found = Explanation(
        name,
        known.jaxlib_version,
        flag=known.flags.get(name),
        history=past,
        is_current=past is not None and past.last == history().newest,
        note=notes().get(name),
        replacement=replacement_of(name),
        setting=ENV_VARS.get(name),
        libtpu_version=tpu.version,
        libtpu_flag=tpu.flags.get(name),
        libtpu_history=libtpu_history(name),
    )
    flag = (found.flag, found.history, found.libtpu_flag, found.libtpu_history)
    if not any((*flag, found.replacement, found.setting)):
        flags = {*known.flags, *history().flags, *REPLACEMENTS, *libtpu_names()}
        raise _unknown(name, {*flags, *ENV_VARS})
    return found


def flag_diff(old: str, new: str) -> FlagDiff:
    """What changed from one jaxlib release to another."""
    before, after = catalogue_of(old), catalogue_of(new)
    both = sorted(set(before.flags) & set(after.flags))
    pairs = [(before.flags[name], after.flags[name]) for name in both]
    places = [PlaceChange(then.name, _place_changes(then, now)) for then, now in pairs]
    return FlagDiff(
        before.jaxlib_version,
        after.jaxlib_version,
        removed=tuple(sorted(set(before.flags) - set(after.flags))),
        added=tuple(after.flags[name] for name in sorted(set(after.flags) - set(before.flags))),
        defaults=tuple(
            DefaultChange(then.name, then.default, now.default)
            for then, now in pairs
            if then.default != now.default and now.default is not None
        ),
        places=tuple(place for place in places if place.changes),
    )


def libtpu_diff(old: str, new: str) -> FlagDiff:
    """What changed from the libtpu of one jaxlib release to that of another."""
    before, after = _harvested_libtpu(old), _harvested_libtpu(new)
    pairs = [
        (flag, after.flags[name]) for name, flag in before.flags.items() if name in after.flags
    ]
    return FlagDiff(
        before.version,
        after.version,
        removed=tuple(sorted(set(before.flags) - set(after.flags))),
        added=tuple(after.flags[name] for name in sorted(set(after.flags) - set(before.flags))),
        defaults=tuple(
            DefaultChange(then.name, then.default, now.default)
            for then, now in pairs
            if then.default != now.default
        ),
        places=tuple(
            PlaceChange(then.name, (f"{then.kind} became {now.kind}",))
            for then, now in pairs
            if then.kind != now.kind
        ),
        library="libtpu",
    )


def _harvested_libtpu(jaxlib: str) -> LibtpuCatalogue:
    found = libtpu_catalogue(catalogue_of(jaxlib).jaxlib_version)
    if found.instead_of is not None:
        known = ", ".join(libtpu_jaxlibs())
        raise BadInput(
            f"the flags of the libtpu of jaxlib {jaxlib} are not known; expected one of {known}"
        )
    return found


def _place_changes(then: Flag, now: Flag) -> tuple[str, ...]:
    changes = []
    if bool(then.in_xla_flags) != bool(now.in_xla_flags):
        changes.append(f"XLA_FLAGS {'accepts' if now.in_xla_flags else 'rejects'} it")
    if then.in_compiler_options != now.in_compiler_options:
        verb = "accept" if now.in_compiler_options else "reject"
        changes.append(f"compile options {verb} it")
    if now.is_deprecated and not then.is_deprecated:
        changes.append("deprecated")
    if then.kind != now.kind and "unknown" not in (then.kind, now.kind):
        changes.append(f"{then.kind} became {now.kind}")
    return tuple(changes)


def _unknown(name: str, names: Iterable[str]) -> BadInput:
    guess = did_you_mean(name, sorted(names), MOST_SUGGESTED, cutoff=0.6)
    return BadInput(
        f"there is no flag or variable {name!r} in any release; {guess}"
        "see: slipstream flags list --grep WORD"
    )
