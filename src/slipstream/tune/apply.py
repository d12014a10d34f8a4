"""The winning settings as `flags preset` has them, so that every form it writes is there."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from slipstream.errors import BadInput
from slipstream.flags.catalogue.catalogue import Catalogue, default_catalogue
from slipstream.flags.catalogue.values import flag_value_error, repaired_value
from slipstream.flags.presets.definitions import HERE, PresetEntry
from slipstream.flags.presets.presets import ComposedPresets, ResolvedEntry
from slipstream.results.tuning import Tuning
from slipstream.tune.space.knob import COSTS

COSTS_FILE = "costs.pb"
_PROFILE = "xla_gpu_pgle_profile_file_or_directory_path"


def winning_settings(
    tuning: Tuning, costs: str | None = None, typed: Collection[str] = ()
) -> ComposedPresets:
    """What to set for the best candidate, each setting with the reason that it is a knob.

    Those in `typed` are no settings, but places in the job's command.
    """
    best = tuning.best
    if best is None:
        raise BadInput(
            f"{tuning.folder} has no result yet; go on with it: slipstream tune resume "
            f"{tuning.folder}"
        )
    whys = {knob.name: knob.why for knob in tuning.knobs}
    catalogue = default_catalogue()
    chosen = []
    file = Path(tuning.folder).absolute() / COSTS_FILE
    settings = {name: value for name, value in best.settings.items() if name not in typed}
    written = as_flags(settings, catalogue, costs or (str(file) if file.exists() else None))
    for own, (name, value) in zip(settings, written.items(), strict=True):
        entry = PresetEntry(name, value, whys.get(own, ""), HERE)
        chosen.append(ResolvedEntry(entry, "tune", "found", name, value))
    gpu = tuning.machine
    return ComposedPresets((f"tune {tuning.target}",), tuning.jaxlib, gpu, tuple(chosen))


def as_flags(
    settings: Mapping[str, str], catalogue: Catalogue, costs: str | None = None
) -> dict[str, str]:
    """Settings as XLA_FLAGS and the environment have them, in their order."""
    found = as_options(settings, costs)
    return {name: _in_xla_flags(name, value, catalogue) for name, value in found.items()}


def as_options(settings: Mapping[str, str], costs: Path | str | None = None) -> dict[str, str]:
    """Settings with the flag that stands for costs."""
    flags = {COSTS: (_PROFILE, str(costs or COSTS_FILE))}
    return dict(flags.get(name, (name, value)) for name, value in settings.items())


def _in_xla_flags(name: str, value: str, catalogue: Catalogue) -> str:
    """Candidates are compiled with options; XLA_FLAGS wants a few enums shorter."""
    flag = catalogue.flags.get(name)
    if flag is None or flag_value_error(flag, value, catalogue.jaxlib_version) is None:
        return value
    return repaired_value(flag, value, is_option=False, version=catalogue.jaxlib_version) or value
