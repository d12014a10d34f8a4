"""The space of a search: the knobs that this jaxlib has and this program can feel.

shelf ──catalogue──► flags that exist, values it takes ──traits──► knobs that can matter
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from slipstream.did_you_mean import did_you_mean, no_such
from slipstream.errors import BadInput
from slipstream.flags.catalogue.catalogue import SIMILAR, Catalogue
from slipstream.flags.catalogue.env_vars import ENV_VARS
from slipstream.flags.catalogue.values import normalized, option_value_error
from slipstream.tune.space.knob import COSTS, Knob
from slipstream.tune.space.knob_catalogue import KNOBS, NEEDS, KnobSpec, sentence
from slipstream.tune.space.program_traits import ProgramTraits

UNSET = "(unset)"
"""a variable that is not there"""
UNMEASURED = "only a run can tell: --measure"
UNLAUNCHED = "a variable of the whole process: only launching the job anew can tell"


@dataclass(frozen=True)
class SpaceOptions:
    """What a user adds to the space, or takes from it."""

    forbidden: tuple[str, ...] = ()
    added: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """values by the name of a flag or variable"""
    only: tuple[str, ...] = ()
    """if any are named, no others"""
    typed: tuple[str, ...] = ()
    """added ones that are places in the job's command; their first value is the default"""


@dataclass(frozen=True)
class Space:
    """Knobs, and those that were left out with the reason."""

    knobs: tuple[Knob, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """How many settings there are."""
        return prod(len(knob.values) for knob in self.knobs)

    @property
    def screened(self) -> Space:
        """Without the knobs that only a run can tell."""
        return self._split(lambda knob: knob.seen_by != "measurement", UNMEASURED)

    @property
    def in_process(self) -> Space:
        """Without the knobs that are given to a whole process."""
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
        """Settings: what is not at its default, in the order of the knobs."""
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
    asked: SpaceOptions = SpaceOptions(),  # noqa: B008
) -> Space:
    """The knobs for one program; those that only a run can tell need one, variables a launch."""
    left_out: dict[str, str] = {}
    knobs = []
    for spec in KNOBS:
        knob, reason = _taken(spec, traits, catalogue, is_measured, is_launched)
        if knob is not None:
            knobs.append(knob)
        else:
            left_out[spec.name] = reason
    if has_costs:
        why = "Measured costs for the scheduler, in the place of its own estimates."
        knobs.append(Knob(COSTS, ("off", "on"), why))
    for name, values in asked.added.items():
        knobs = [knob for knob in knobs if knob.name != name]
        is_typed = name in asked.typed
        knobs.append(_typed(name, values) if is_typed else _added(name, values, catalogue))
        left_out.pop(name, None)
    return _restricted(knobs, left_out, asked)


def _restricted(knobs: Sequence[Knob], left_out: dict[str, str], asked: SpaceOptions) -> Space:
    _refuse_unknown((*asked.forbidden, *asked.only), [*(k.name for k in knobs), *left_out])
    kept = []
    for knob in knobs:
        if knob.name in asked.forbidden:
            left_out[knob.name] = "forbidden"
        elif asked.only and knob.name not in asked.only:
            left_out[knob.name] = "not among those that were named"
        else:
            kept.append(knob)
    return Space(tuple(kept), left_out)


def _refuse_unknown(named: Iterable[str], known: Sequence[str]) -> None:
    for name in named:
        if name not in known:
            raise BadInput(no_such("knob", name, sorted(known)))


def _taken(
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
        return None, f"jaxlib {catalogue.jaxlib_version} takes no other value"
    why = sentence(spec, traits)
    return Knob(spec.name, values, why, spec.seen_by, spec.is_ordered), ""


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
    """The default, then the other values that this jaxlib takes."""
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


def _typed(name: str, values: Sequence[str]) -> Knob:
    """A place in the job's command."""
    return Knob(name, _with(values[0], values[1:]), "in the job's command", "measurement")


def _added(name: str, values: Sequence[str], catalogue: Catalogue) -> Knob:
    """A knob that somebody asked for: its flag must exist, and take the values."""
    why = "asked for"
    if not name.startswith("xla_"):
        setting = ENV_VARS.get(name)
        default = setting.default if setting is not None else None
        return Knob(name, _with(default or UNSET, values), why, "measurement")
    flag = catalogue.flags.get(name)
    if flag is None or not flag.in_compiler_options:
        guess = did_you_mean(name, catalogue.flags, cutoff=SIMILAR)
        raise BadInput(
            f"jaxlib {catalogue.jaxlib_version} has no flag {name} that a compile takes; {guess}"
            "see: slipstream flags list"
        )
    for value in values:
        spelled = value.capitalize() if flag.kind == "bool" else value
        if complaint := option_value_error(flag, spelled, catalogue.jaxlib_version):
            raise BadInput(f"--add {name}: the value {complaint}")
    if flag.default is None:
        raise BadInput(f"the default of {name} is not known; expected a flag with one")
    return Knob(name, _with(flag.default, values), why)


def _with(default: str, values: Sequence[str]) -> tuple[str, ...]:
    found = tuple(dict.fromkeys([default, *values]))
    if len(found) < 2:
        raise BadInput(f"a knob needs a value besides its default {default!r}; add one")
    return found
