"""The winning settings as a preset, so that `tune apply` can write every form of `flags preset`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from slipstream.errors import BadInput
from slipstream.flags.catalogue.catalogue import Catalogue, default_catalogue
from slipstream.flags.catalogue.values import flag_value_error, repaired_value
from slipstream.flags.presets.definitions import HERE, PresetEntry
from slipstream.flags.presets.presets import ComposedPresets, ResolvedEntry
from slipstream.machines.topology import machine
from slipstream.results.tuning import Tuning
from slipstream.tune.space.knob import COSTS

COSTS_FILE = "costs.pb"
LIBTPU_VARIABLE = "LIBTPU_INIT_ARGS"
_PROFILE = "xla_gpu_pgle_profile_file_or_directory_path"


def winning_settings(
    tuning: Tuning, costs: str | None = None, placeholders: Collection[str] = ()
) -> ComposedPresets:
    """The best candidate's settings, each with what it is meant to do.

    Knobs in `placeholders` are left out: their values go into the job's command.
    """
    best = tuning.best
    if best is None:
        raise BadInput(
            f"{tuning.folder} has no result yet; continue it: slipstream tune resume "
            f"{tuning.folder}"
        )
    whys = {knob.name: knob.why for knob in tuning.knobs}
    catalogue = default_catalogue()
    chosen = []
    file = Path(tuning.folder).absolute() / COSTS_FILE
    settings = {name: value for name, value in best.settings.items() if name not in placeholders}
    written = as_flags(settings, catalogue, costs or (str(file) if file.exists() else None))
    for own, (name, value) in zip(settings, written.items(), strict=True):
        entry = PresetEntry(name, value, whys.get(own, ""), HERE)
        chosen.append(ResolvedEntry(entry, "tune", "found", name, value))
    if machine(tuning.machine).kind == "tpu":
        chosen = _for_libtpu(chosen)
    gpu = tuning.machine
    return ComposedPresets((f"tune {tuning.target}",), tuning.jaxlib, gpu, tuple(chosen))


def _for_libtpu(chosen: list[ResolvedEntry]) -> list[ResolvedEntry]:
    """Flags of XLA:TPU as the one variable that libtpu reads them from."""
    flags = [one for one in chosen if one.name.startswith("xla_")]
    if not flags:
        return chosen
    value = " ".join(f"--{one.name}={one.value}" for one in flags)
    why = " ".join(dict.fromkeys(one.entry.reason for one in flags))
    entry = PresetEntry(LIBTPU_VARIABLE, value, why, HERE)
    rest = [one for one in chosen if one not in flags]
    return [ResolvedEntry(entry, "tune", "found", LIBTPU_VARIABLE, value), *rest]


def as_flags(
    settings: Mapping[str, str], catalogue: Catalogue, costs: str | None = None
) -> dict[str, str]:
    """Settings as XLA_FLAGS and the environment spell them, in order."""
    found = as_options(settings, costs)
    return {name: _in_xla_flags(name, value, catalogue) for name, value in found.items()}


def as_options(settings: Mapping[str, str], costs: Path | str | None = None) -> dict[str, str]:
    """Settings with the knob `costs` replaced by its flag."""
    flags = {COSTS: (_PROFILE, str(costs or COSTS_FILE))}
    return dict(flags.get(name, (name, value)) for name, value in settings.items())


def _in_xla_flags(name: str, value: str, catalogue: Catalogue) -> str:
    """A value as XLA_FLAGS spells it: some enums are shorter there than in compile options."""
    flag = catalogue.flags.get(name)
    if flag is None or flag_value_error(flag, value, catalogue.jaxlib_version) is None:
        return value
    return repaired_value(flag, value, is_option=False, version=catalogue.jaxlib_version) or value
