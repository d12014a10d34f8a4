"""Flags that a diagnosis recommends: only those that the run's own jaxlib takes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from slipstream.errors import BadInput
from slipstream.flags.catalogue.catalogue import Catalogue, default_catalogue
from slipstream.flags.catalogue.history import catalogue_of
from slipstream.flags.catalogue.values import flag_value_error
from slipstream.flags.lint.conflicts import is_no_op
from slipstream.profile.profile import Profile
from slipstream.results.diagnosis import Remedy


class FlagAdvice:
    """The flags of the jaxlib that made a profile, and what the run set."""

    def __init__(self, profile: Profile, settings: Mapping[str, str], is_known: bool) -> None:
        self.settings = settings
        self.is_known = is_known
        """whether anything says which flags the run was started with"""
        stated = (host.versions.get("jaxlib_version", "") for host in profile.hosts)
        self.recorded = next((version for version in stated if version), "")

    @cached_property
    def catalogue(self) -> Catalogue:
        """Of the release that was recorded; where that isn't known, of the installed one."""
        if self.recorded:
            try:
                return catalogue_of(self.recorded)
            except BadInput:
                pass  # the note says so
        return default_catalogue()

    @property
    def note(self) -> str:
        """What a reader must know of the names that are recommended."""
        version = self.catalogue.jaxlib_version
        if not self.recorded:
            return f"the profile doesn't say which jaxlib made it: flags are those of {version}"
        if self.recorded != version:
            return f"no flags are known of jaxlib {self.recorded}: they are those of {version}"
        return ""

    def value(self, name: str) -> str | None:
        """What a flag was: as set, else its default; None where neither is known."""
        if name in self.settings:
            return self.settings[name]
        found = self.catalogue.flags.get(name)
        return found.default if found is not None else None

    def is_off(self, name: str) -> bool | None:
        """Whether a switch was off; None where nobody said what the run set."""
        if not self.is_known:
            return None
        return (self.value(name) or "false").strip().lower() in ("false", "0", "no")

    def change(self, name: str, value: str, note: str = "") -> Remedy | None:
        """The change that sets a flag; None where this jaxlib would not take it, or ignore it."""
        flag = self.catalogue.flags.get(name)
        if flag is None or not flag.in_xla_flags or is_no_op(flag):
            return None
        if flag_value_error(flag, value, self.catalogue.jaxlib_version) is not None:
            return None
        return Remedy("flag", f"--{name}={value}", note)
