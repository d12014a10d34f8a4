"""The search space: the knobs that this jaxlib has and that can affect this program.

knob catalogue ──jaxlib's flags──► existing flags, accepted values ──traits──► knobs that matter
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from slipstream.compiler.options import tpu_flags
from slipstream.did_you_mean import did_you_mean, no_such
from slipstream.errors import BadInput
from slipstream.flags.catalogue.catalogue import SIMILAR, Catalogue
from slipstream.flags.catalogue.env_vars import ENV_VARS
from slipstream.flags.catalogue.values import normalized, option_value_error
from slipstream.tune.space.knob import COSTS, Knob
from slipstream.tune.space.knob_catalogue import KNOBS, NEEDS, KnobSpec, sentence
from slipstream.tune.space.program_traits import ProgramTraits
from slipstream.tune.space.tpu_knobs import LEFT_ALONE, TPU_KNOBS

UNSET = "(unset)"
"""the value of a variable that is not set"""
UNMEASURED = "its effect can only be measured: --measure"
UNLAUNCHED = "a variable of the whole process: measure with a launched job (-- CMD)"


@dataclass(frozen=True)
class SpaceOptions:
    """What the user adds to the space, or removes from it."""

    forbidden: tuple[str, ...] = ()
    added: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """values by the name of a flag or variable"""
    only: tuple[str, ...] = ()
    """if not empty, only these"""
    placeholders: tuple[str, ...] = ()
    """added knobs that are placeholders in the job's command; the first value is the default"""


@dataclass(frozen=True)
class Space:
    """The knobs, and those that were left out with the reason."""

    knobs: tuple[Knob, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The number of possible settings."""
        return prod(len(knob.values) for knob in self.knobs)

    @property
    def screened(self) -> Space:
        """Without the knobs that only a measurement can judge."""
        return self._split(lambda knob: knob.seen_by != "measurement", UNMEASURED)

    @property
    def in_process(self) -> Space:
        """Without the knobs that apply to a whole process."""
        return self._split(lambda knob: not knob.is_variable, UNLAUNCHED)

    def without(self, names: Iterable[str], why: str) -> Space:
        gone = set(names)
        return self._split(lambda knob: knob.name not in gone, why)

    def _split(self, keeps: Callable[[Knob], bool], why: str) -> Space:
        kept = tuple(knob for knob in self.knobs if keeps(knob))
        gone = {knob.name: why for knob in self.knobs if not keeps(knob)}
        return Space(kept, {**self.left_out, **gone})

    def knob(self, name: str) -> Knob | None:
        return next((knob for knob in self.knobs if knob.name == name), None)

    def without_defaults(self, chosen: Mapping[str, str]) -> dict[str, str]:
        """Settings that differ from the default, in the order of the knobs."""
        return {
            knob.name: chosen[knob.name]
            for knob in self.knobs
            if chosen.get(knob.name, knob.default) != knob.default
        }

    def to_json(self) -> dict[str, Any]:
        knobs = [knob.to_json() for knob in self.knobs]
        return {"knobs": knobs, "left_out": dict(self.left_out)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Space:
        return Space(tuple(map(Knob.from_json, data["knobs"])), dict(data["left_out"]))


def space_of(
    traits: ProgramTraits,
    catalogue: Catalogue,
    *,
    is_measured: bool = False,
    is_launched: bool = False,
    has_costs: bool = False,
    is_tpu: bool = False,
    options: SpaceOptions = SpaceOptions(),  # noqa: B008
) -> Space:
    """The knobs for one program.

    `is_measured`: include knobs that only a measurement can judge. `is_launched`: include
    environment variables, which need a new process.
    """
    left_out: dict[str, str] = {}
    knobs = []
    for spec in TPU_KNOBS if is_tpu else KNOBS:
        if is_tpu:
            knob, reason = _matched_tpu(spec, traits)
        else:
            knob, reason = _matched(spec, traits, catalogue, is_measured, is_launched)
        if knob is not None:
            knobs.append(knob)
        else:
            left_out[spec.name] = reason
    if has_costs:
        why = "To give the scheduler measured costs instead of its own estimates."
        knobs.append(Knob(COSTS, ("off", "on"), why))
    for name, values in options.added.items():
        knobs = [knob for knob in knobs if knob.name != name]
        if name in options.placeholders:
            knobs.append(_placeholder(name, values))
        elif is_tpu:
            knobs.append(_added_tpu(name, values))
        else:
            knobs.append(_added(name, values, catalogue))
        left_out.pop(name, None)
    return _restricted(knobs, left_out, options)


def _restricted(knobs: Sequence[Knob], left_out: dict[str, str], options: SpaceOptions) -> Space:
    _refuse_unknown((*options.forbidden, *options.only), [*(k.name for k in knobs), *left_out])
    kept = []
    for knob in knobs:
        if knob.name in options.forbidden:
            left_out[knob.name] = "forbidden"
        elif options.only and knob.name not in options.only:
            left_out[knob.name] = "not named by --only"
        else:
            kept.append(knob)
    return Space(tuple(kept), left_out)


def _refuse_unknown(named: Iterable[str], known: Sequence[str]) -> None:
    for name in named:
        if name not in known:
            raise BadInput(no_such("knob", name, sorted(known)))


def _matched(
    spec: KnobSpec,
    traits: ProgramTraits,
    catalogue: Catalogue,
    is_measured: bool,
    is_launched: bool,
) -> tuple[Knob | None, str]:
    is_needed, lacking = NEEDS[spec.needs]
    if not is_needed(traits):
        return None, f"the program has {lacking}"
    if spec.seen_by == "measurement" and not is_measured:
        return None, UNMEASURED
    if not spec.name.startswith("xla_") and not is_launched:
        return None, UNLAUNCHED
    default, reason = _default(spec.name, catalogue)
    if default is None:
        return None, reason
    values = _accepted(spec, default, traits, catalogue)
    if len(values) < 2:
        return None, f"jaxlib {catalogue.jaxlib_version} accepts no other value"
    why = sentence(spec, traits)
    return Knob(spec.name, values, why, spec.seen_by, spec.is_ordered), ""


def _matched_tpu(spec: KnobSpec, traits: ProgramTraits) -> tuple[Knob | None, str]:
    is_needed, lacking = NEEDS[spec.needs]
    if not is_needed(traits):
        return None, f"the program has {lacking}"
    values = (LEFT_ALONE, *spec.values_for(traits))
    return Knob(spec.name, values, sentence(spec, traits), spec.seen_by), ""


def _added_tpu(name: str, values: Sequence[str]) -> Knob:
    """A knob added with --add; libtpu checks its name and values."""
    tpu_flags(dict.fromkeys([name], values[0] if values else ""))
    return Knob(name, _with(LEFT_ALONE, values), "Added with --add.")


def _default(name: str, catalogue: Catalogue) -> tuple[str | None, str]:
    if not name.startswith("xla_"):
        setting = ENV_VARS[name]
        return setting.default if setting.default is not None else UNSET, ""
    flag = catalogue.flags.get(name)
    if flag is None or flag.default is None:
        return None, f"jaxlib {catalogue.jaxlib_version} doesn't have it"
    if not flag.in_compiler_options or flag.is_deprecated:
        return None, f"retired in jaxlib {catalogue.jaxlib_version}"
    return flag.default, ""


def _accepted(
    spec: KnobSpec, default: str, traits: ProgramTraits, catalogue: Catalogue
) -> tuple[str, ...]:
    """The default, then the other values that this jaxlib accepts."""
    flag = catalogue.flags.get(spec.name)
    found = [default]
    for value in spec.values_for(traits):
        if flag is None:
            found += [value] if value != default else []
            continue
        if value and flag.kind == "repeated enum":
            value = ",".join(kind for kind in value.split(",") if kind in flag.enum_values)
        spelled = value.capitalize() if flag.kind == "bool" else value
        if option_value_error(flag, spelled, catalogue.jaxlib_version) is not None:
            continue
        if normalized(flag, value) not in {normalized(flag, one) for one in found}:
            found.append(value)
    return tuple(found)


def _placeholder(name: str, values: Sequence[str]) -> Knob:
    """A placeholder in the job's command."""
    return Knob(
        name, _with(values[0], values[1:]), "A placeholder in the job's command.", "measurement"
    )


def _added(name: str, values: Sequence[str], catalogue: Catalogue) -> Knob:
    """A knob added with --add: its flag must exist and accept the values."""
    why = "Added with --add."
    if not name.startswith("xla_"):
        setting = ENV_VARS.get(name)
        default = setting.default if setting is not None else None
        return Knob(name, _with(default or UNSET, values), why, "measurement")
    flag = catalogue.flags.get(name)
    if flag is None or not flag.in_compiler_options:
        guess = did_you_mean(name, catalogue.flags, cutoff=SIMILAR)
        raise BadInput(
            f"jaxlib {catalogue.jaxlib_version} has no compile option {name}; {guess}"
            "see: slipstream flags list"
        )
    for value in values:
        spelled = value.capitalize() if flag.kind == "bool" else value
        if problem := option_value_error(flag, spelled, catalogue.jaxlib_version):
            raise BadInput(f"--add {name}: the value {problem}")
    if flag.default is None:
        raise BadInput(f"the default of {name} is unknown; expected a flag with a known default")
    return Knob(name, _with(flag.default, values), why)


def _with(default: str, values: Sequence[str]) -> tuple[str, ...]:
    found = tuple(dict.fromkeys([default, *values]))
    if len(found) < 2:
        raise BadInput(f"a knob needs a value besides its default {default!r}; add one")
    return found
