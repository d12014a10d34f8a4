"""The first candidates: the default, presets of the guides, one layer's thresholds, each knob.

A search that starts with what people do by hand can't do worse.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from slipstream.errors import BadInput
from slipstream.flags.catalogue.catalogue import Catalogue
from slipstream.flags.catalogue.values import normalized
from slipstream.flags.presets.presets import compose
from slipstream.machines.tpus import tpus
from slipstream.tune.space.knob import COSTS, Knob
from slipstream.tune.space.program_traits import ProgramTraits
from slipstream.tune.space.space import Space
from slipstream.tune.space.tpu_knobs import TPU_SETS

DEFAULT, LAYERS, PROBE, SEARCH, SIMPLIFY = "default", "layers", "probe", "search", "simplify"


@dataclass(frozen=True)
class Suggestion:
    """Settings to try, and their origin."""

    settings: Mapping[str, str]
    origin: str


def seeds(
    space: Space, traits: ProgramTraits, catalogue: Catalogue, chip: str, most_probes: int
) -> list[Suggestion]:
    """The seeds in the order to try them, without duplicates."""
    proposed = [Suggestion({}, DEFAULT), *_from_presets(space, traits, catalogue, chip)]
    if layers := _layers(space, traits):
        proposed.append(Suggestion(layers, LAYERS))
    if space.knob(COSTS) is not None:
        proposed.append(Suggestion({COSTS: "on"}, "costs"))
    proposed += _probes(space, most_probes)
    seen: set[tuple[tuple[str, str], ...]] = set()
    found = []
    for one in proposed:
        key = tuple(sorted(one.settings.items()))
        if key not in seen:
            seen.add(key)
            found.append(one)
    return found


def presets_for(traits: ProgramTraits) -> list[str]:
    """The presets for a program with such traits."""
    kinds = set(traits.collectives)
    found = ["cuda-graphs-off", "cuda-graphs-on"]
    if {"all-gather", "reduce-scatter"} & kinds:
        found += ["fsdp", "llm-gpu"]
    if "all-reduce" in kinds:
        found.append("data-parallel")
    if "collective-permute" in kinds:
        found.append("pipeline-parallel")
    return [*found, "tensor-parallel"] if kinds and traits.matmuls else found


def _from_presets(
    space: Space, traits: ProgramTraits, catalogue: Catalogue, chip: str
) -> Iterator[Suggestion]:
    if chip in tpus():
        for name, wanted in TPU_SETS.items():
            if settings := fitted(space, wanted, catalogue):
                yield Suggestion(settings, name)
        return
    for name in presets_for(traits):
        try:
            composed = compose([name], catalogue, chip)
        except BadInput:
            continue  # the preset's settings conflict in this jaxlib
        settings = fitted(space, {**composed.xla_flags, **composed.variables}, catalogue)
        if settings:
            yield Suggestion(settings, f"preset {name}")


def fitted(space: Space, wanted: Mapping[str, str], catalogue: Catalogue) -> dict[str, str]:
    """Settings mapped to the values of the knobs: sizes become the nearest one."""
    found = {}
    for knob in space.knobs:
        if knob.name not in wanted:
            continue
        value = _nearest(knob, wanted[knob.name], catalogue)
        if value is not None:
            found[knob.name] = value
    return space.without_defaults(found)


def _nearest(knob: Knob, wanted: str, catalogue: Catalogue) -> str | None:
    if knob.is_ordered and wanted.lstrip("-").isdigit():
        return min(knob.ordered_values, key=lambda value: abs(float(value) - float(wanted)))
    flag = catalogue.flags.get(knob.name)
    for value in knob.values:
        if value == wanted or (
            flag is not None and normalized(flag, value) == normalized(flag, wanted)
        ):
            return value
    # Presets spell some enums as in XLA_FLAGS: `on` for …_MODE_ON.
    ends = [value for value in knob.values if wanted and value.endswith(f"_{wanted.upper()}")]
    return ends[0] if len(ends) == 1 else None


def _layers(space: Space, traits: ProgramTraits) -> dict[str, str]:
    layers = traits.layers
    if layers is None or layers.layers is None:
        return {}
    own = {name: str(size) for name, size in layers.flags.items()}
    found = {k.name: own[k.name] for k in space.knobs if own.get(k.name) in k.values}
    return space.without_defaults(found)


def _probes(space: Space, most: int) -> list[Suggestion]:
    """Each knob alone, at the value furthest from its default."""
    return [
        Suggestion({knob.name: value}, PROBE)
        for knob in space.knobs
        if (value := next((v for v in reversed(knob.values) if v != knob.default), None))
    ][:most]
