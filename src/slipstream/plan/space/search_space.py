"""The combinations as a study searches them: one knob for each choice, values as JSON texts."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from slipstream.plan.space.choices import Choice
from slipstream.plan.space.parameters import Value
from slipstream.plan.space.space import Combination, Space
from slipstream.tune.space.knob import Knob

Settings = Mapping[str, str]


@dataclass(frozen=True)
class SearchSpace:
    """A space on one machine, as a study sees it."""

    choices: tuple[Choice, ...]
    space: Space
    left_out: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def knobs(self) -> tuple[Knob, ...]:
        return tuple(_knob(name, values) for name, values in self._values.items())

    @property
    def size(self) -> int:
        return self.space.count

    @cached_property
    def _values(self) -> dict[str, list[Value]]:
        """The values that a choice has in any combination, the default first."""
        found: dict[str, list[Value]] = {name: [] for name in self.space.names}
        for group in self.space.groups:
            for name in dict(group[0].items) if group else ():
                found[name] = list(
                    {_text(one.keywords[name]): one.keywords[name] for one in group}.values()
                )
        for name, values in found.items():
            default = self.space.defaults.get(name)
            values.sort(key=lambda value: _text(value) != _text(default))
        return found

    def without_defaults(self, chosen: Settings) -> dict[str, str]:
        """The possible combination next to a value for each choice: sizes of a mesh may not fit."""
        wanted = {name: json.loads(text) for name, text in chosen.items()}
        found: dict[str, Value] = {}
        for group in self.space.groups:
            near = min(group, key=lambda one: sum(_distance(v, wanted[n]) for n, v in one.items))
            found |= near.keywords
        return {name: _text(found[name]) for name in self.space.names}


def settings_of(combination: Combination) -> dict[str, str]:
    return {name: _text(value) for name, value in combination.items}


def combination_of(settings: Settings) -> Combination:
    return Combination(tuple((name, json.loads(text)) for name, text in settings.items()))


def _text(value: Value) -> str:
    return json.dumps(value)


def _knob(name: str, values: list[Value]) -> Knob:
    is_ordered = all(_is_number(value) for value in values)
    return Knob(
        name, tuple(map(_text, values)), "a choice of the build function", is_ordered=is_ordered
    )


def _is_number(value: Value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _distance(value: Value, wanted: Value) -> float:
    """How far two values of a choice are apart: sizes by their ratio, others not at all alike."""
    if value == wanted and type(value) is type(wanted):
        return 0.0
    if isinstance(value, (int, float)) and isinstance(wanted, (int, float)) and value > 0 < wanted:
        return abs(math.log2(value / wanted))
    return 4.0
