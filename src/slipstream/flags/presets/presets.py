"""Settings for a kind of job: what the guides recommend, adapted to one jaxlib."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from slipstream.did_you_mean import no_such
from slipstream.errors import BadInput
from slipstream.flags.catalogue.catalogue import Catalogue
from slipstream.flags.catalogue.env_vars import ENV_VARS
from slipstream.flags.catalogue.history import version_key
from slipstream.flags.catalogue.libtpu import LibtpuCatalogue, libtpu_catalogue, libtpu_history
from slipstream.flags.catalogue.replacements import replacement_of
from slipstream.flags.catalogue.retired import renamed_form, retirement_of
from slipstream.flags.catalogue.values import normalized
from slipstream.flags.lint.conflicts import has_analytical_estimator, is_no_op
from slipstream.flags.presets.definitions import Preset, PresetEntry
from slipstream.flags.presets.table import PRESETS
from slipstream.flags.settings import Setting, SourceLocation

Resolution = Literal["kept", "renamed", "default", "retired", "withheld", "newer", "added", "found"]

_LISTS = frozenset(("xla_disable_hlo_passes", "xla_gpu_disable_async_collectives"))
"""flags whose values are lists, which are merged if two presets set them"""
_NOWHERE = SourceLocation("preset", 1, 1, None)


@dataclass(frozen=True)
class ResolvedEntry:
    """An entry of a preset, and what to set for it with one jaxlib."""

    entry: PresetEntry
    preset: str
    today: Resolution
    name: str
    value: str
    """what to set; differs from the entry if the flag was renamed"""
    because: str = ""
    """why it changed or is left out; empty if it is kept"""

    @property
    def is_set(self) -> bool:
        """Whether it has to be set: neither retired nor the default."""
        return self.today in ("kept", "renamed", "added", "found")


@dataclass(frozen=True)
class ComposedPresets:
    """Several presets combined."""

    presets: tuple[str, ...]
    jaxlib_version: str
    gpu: str | None
    chosen: tuple[ResolvedEntry, ...]
    libtpu: str | None = None
    """`libtpu 0.0.42.1`, if there are flags for TPUs"""

    @property
    def settings(self) -> tuple[ResolvedEntry, ...]:
        """What to set, each name once."""
        return tuple(one for one in self.chosen if one.is_set)

    @property
    def left_out(self) -> tuple[ResolvedEntry, ...]:
        """What the guides recommend but this jaxlib doesn't need or have."""
        return tuple(one for one in self.chosen if not one.is_set)

    @property
    def xla_flags(self) -> dict[str, str]:
        """Flags for `XLA_FLAGS`."""
        return self.flags.get("XLA_FLAGS", {})

    @property
    def flags(self) -> dict[str, dict[str, str]]:
        """Flags by the variable that sets them, `XLA_FLAGS` or `LIBTPU_INIT_ARGS`."""
        found: dict[str, dict[str, str]] = {}
        for one in self.settings:
            if one.entry.is_flag:
                found.setdefault(one.entry.variable, {})[one.name] = one.value
        return found

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables besides those."""
        return {one.name: one.value for one in self.settings if not one.entry.is_flag}


def preset_of(name: str) -> Preset:
    """A preset by its name."""
    for preset in PRESETS:
        if preset.name == name:
            return preset
    raise BadInput(no_such("preset", name, [preset.name for preset in PRESETS]))


def compose(
    names: Sequence[str],
    catalogue: Catalogue,
    gpu: str | None = None,
    libtpu: LibtpuCatalogue | None = None,
) -> ComposedPresets:
    """Combine presets for one jaxlib and one GPU or libtpu; contradictory presets are an error.

    Without `libtpu`, flags for TPUs are those of the one that the jaxlib installs.
    """
    if not names:
        raise BadInput("no preset given; see: slipstream flags preset --list")
    entries = [pair for name in dict.fromkeys(names) for pair in _entries(preset_of(name))]
    if gpu is not None and not has_analytical_estimator(gpu):
        entries = [pair for pair in entries if not pair[1].only_with_estimator]
    tpu = libtpu or libtpu_catalogue(catalogue.jaxlib_version)
    chosen = [
        _choose_for_tpus(preset, entry, tpu)
        if entry.is_for_tpus
        else _choose(preset, entry, entries, catalogue)
        for preset, entry in entries
    ]
    joined = tuple(_joined(chosen))
    _refuse_fatal(joined, catalogue)
    label = tpu.label if any(entry.is_for_tpus for _, entry in entries) else None
    return ComposedPresets(tuple(names), catalogue.jaxlib_version, gpu, joined, label)


def _choose_for_tpus(preset: str, entry: PresetEntry, libtpu: LibtpuCatalogue) -> ResolvedEntry:
    same = ResolvedEntry(entry, preset, "kept", entry.name, entry.value)
    flag, past = libtpu.flags.get(entry.name), libtpu_history(entry.name)
    if flag is None:
        known = replacement_of(entry.name)
        if past is not None and version_key(past.first) > version_key(libtpu.version):
            return replace(same, today="newer", because=f"libtpu {past.first} added it.")
        gone = f"{libtpu.label} ends a process that sets it."
        return replace(same, today="retired", because=known.because if known else gone)
    if flag.normalized(entry.value) == flag.normalized(flag.default):
        return replace(same, today="default", because=f"{flag.name} is {flag.default} by default.")
    return same


def _refuse_fatal(chosen: Sequence[ResolvedEntry], catalogue: Catalogue) -> None:
    """Reject settings that work alone but fail together.

    With jaxlib 0.12.0.1, collective matmul on several streams without Triton matmuls fails XLA's
    own verifier.
    """
    by_name = {one.name: one for one in chosen if one.is_set}
    matmul = by_name.get("xla_gpu_threshold_for_windowed_einsum_mib")
    triton = by_name.get("xla_gpu_enable_triton_gemm")
    if matmul is None or triton is None or triton.value != "false":
        return
    if version_key(catalogue.jaxlib_version) >= version_key("0.12.0"):
        raise BadInput(
            f"presets {matmul.preset} and {triton.preset} can't be combined: from jaxlib 0.12 on, "
            "collective matmul needs Triton matmuls; remove --xla_gpu_enable_triton_gemm=false"
        )


def _entries(preset: Preset) -> Iterator[tuple[str, PresetEntry]]:
    for included in preset.includes:
        yield from ((preset.name, entry) for _, entry in _entries(preset_of(included)))
    yield from ((preset.name, entry) for entry in preset.entries)


def _choose(
    preset: str,
    entry: PresetEntry,
    entries: Sequence[tuple[str, PresetEntry]],
    catalogue: Catalogue,
) -> ResolvedEntry:
    same = ResolvedEntry(entry, preset, "kept", entry.name, entry.value)
    if entry.until is not None and version_key(catalogue.jaxlib_version) > version_key(entry.until):
        return replace(same, today="default", because=f"Not needed after jaxlib {entry.until}.")
    if entry.withheld:
        return replace(same, today="withheld", because=entry.withheld)
    if not entry.is_flag:
        return _choose_variable(same)
    flag = catalogue.flags.get(entry.name)
    if flag is None or flag.in_xla_flags is False:
        beside = [_as_found(other) for name, other in entries if name == preset]
        return _retired(same, beside, catalogue)
    if is_no_op(flag):
        known = replacement_of(entry.name)
        return replace(same, today="retired", because=known.because if known else "A no-op.")
    renamed = renamed_form(flag, entry.value, catalogue)
    if renamed is not None:
        known = replacement_of(entry.name)
        name, value = renamed
        because = known.because if known else "It was renamed."
        return _unless_default(
            replace(same, today="renamed", name=name, value=value, because=because), catalogue
        )
    return _unless_default(_added(_with_known_kinds(same, catalogue)), catalogue)


def _choose_variable(same: ResolvedEntry) -> ResolvedEntry:
    setting = ENV_VARS.get(same.name)
    if setting is not None and setting.default is not None and same.value == setting.default:
        return replace(same, today="default", because="This is the default.")
    return same


def _added(same: ResolvedEntry) -> ResolvedEntry:
    return same if same.entry.as_said else replace(same, today="added")


def _with_known_kinds(same: ResolvedEntry, catalogue: Catalogue) -> ResolvedEntry:
    """Remove the kinds that this jaxlib doesn't have from a list."""
    flag = catalogue.flags[same.name]
    if flag.kind != "repeated enum" or not same.value:
        return same
    return replace(same, value=",".join(v for v in same.value.split(",") if v in flag.enum_values))


def _unless_default(same: ResolvedEntry, catalogue: Catalogue) -> ResolvedEntry:
    flag = catalogue.flags[same.name]
    is_met = bool(flag.default) and same.entry.is_met_by_any
    if flag.default is None or (
        not is_met and normalized(flag, same.value) != normalized(flag, flag.default)
    ):
        return same
    return replace(
        same, today="default", because=f"{same.name} is {flag.default or 'empty'} by default."
    )


def _retired(same: ResolvedEntry, beside: Sequence[Setting], catalogue: Catalogue) -> ResolvedEntry:
    one = next(found for found in beside if found.name == same.name)
    known = retirement_of(one, beside, catalogue)
    if known is None:
        return replace(same, today="retired", because="This jaxlib doesn't have it.")
    if not known.fix:
        today: Resolution = "newer" if known.code == "unknown" else "retired"
        return replace(same, today=today, because=known.reason)
    name, _, value = known.fix.removeprefix("--").partition("=")
    renamed = replace(same, today="renamed", name=name, value=value, because=known.reason)
    return _unless_default(renamed, catalogue)


def _as_found(entry: PresetEntry) -> Setting:
    text = f"--{entry.name}={entry.value}"
    return Setting("xla_flags", entry.name, entry.value, _NOWHERE, text)


def _joined(chosen: Sequence[ResolvedEntry]) -> Iterator[ResolvedEntry]:
    """Each name once, the settings first, then what is left out."""
    first: dict[str, ResolvedEntry] = {}
    retired: dict[str, ResolvedEntry] = {}
    for one in chosen:
        if one.today in ("retired", "withheld", "newer"):
            retired.setdefault(one.name, one)
            continue
        before = first.get(one.name)
        if before is None:
            first[one.name] = one
        elif before.value != one.value:
            first[one.name] = _merged(before, one)
    yield from first.values()
    yield from retired.values()


def _merged(before: ResolvedEntry, one: ResolvedEntry) -> ResolvedEntry:
    if one.name not in _LISTS:
        raise BadInput(
            f"presets {before.preset} and {one.preset} can't be combined: {one.name} is "
            f"{before.value!r} in one and {one.value!r} in the other; choose one of them"
        )
    values = dict.fromkeys([*before.value.split(","), *one.value.split(",")])
    return replace(before, value=",".join(value for value in values if value))
