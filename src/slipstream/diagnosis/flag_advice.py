"""Flags that a diagnosis recommends: only those that the run's own jaxlib accepts."""

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
        """whether the run's flags are known"""
        stated = (host.versions.get("jaxlib_version", "") for host in profile.hosts)
        self.recorded = next((version for version in stated if version), "")

    @cached_property
    def catalogue(self) -> Catalogue:
        """The flags of the recorded jaxlib; if that is unknown, of the installed one."""
        if self.recorded:
            try:
                return catalogue_of(self.recorded)
            except BadInput:
                pass  # `note` reports it
        return default_catalogue()

    @property
    def note(self) -> str:
        """Which jaxlib the recommended flags are for, if it isn't the recorded one."""
        version = self.catalogue.jaxlib_version
        if not self.recorded:
            return f"the profile doesn't name its jaxlib: using the flags of {version}"
        if self.recorded != version:
            return f"the flags of jaxlib {self.recorded} are unknown: using those of {version}"
        return ""

    def value(self, name: str) -> str | None:
        """A flag's value in the run: as set, or its default; None if unknown."""
        if name in self.settings:
            return self.settings[name]
        found = self.catalogue.flags.get(name)
        return found.default if found is not None else None

    def is_off(self, name: str) -> bool | None:
        """Whether a switch was off; None if the run's flags are unknown."""
        if not self.is_known:
            return None
        return (self.value(name) or "false").strip().lower() in ("false", "0", "no")

    def change(self, name: str, value: str, note: str = "") -> Remedy | None:
        """The change that sets a flag; None if this jaxlib rejects or ignores it."""
        flag = self.catalogue.flags.get(name)
        if flag is None or not flag.in_xla_flags or is_no_op(flag):
            return None
        if flag_value_error(flag, value, self.catalogue.jaxlib_version) is not None:
            return None
        return Remedy("flag", f"--{name}={value}", note)
