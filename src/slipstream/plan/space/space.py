"""All combinations of choices on a machine.

    mesh axes (Divisor)         fsdp × tensor = devices: 1×8, 2×4, 4×2, 8×1, generated
    choices in one condition    batch, remat: tried together, those that --where allows
    every other choice          alone

These groups are independent of each other, so the number of combinations is the product of their
sizes, and any combination can be made from its number without the ones before.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod

from slipstream.errors import BadInput
from slipstream.machines.machine import Machine
from slipstream.plan.space.choices import Choice
from slipstream.plan.space.expression import Condition, parse_where
from slipstream.plan.space.parameters import Value

MOST_TOGETHER = 200_000
"""combinations of choices that conditions join; each is checked"""


@dataclass(frozen=True)
class Combination:
    """A value for each choice, in the order of the signature."""

    items: tuple[tuple[str, Value], ...]

    @property
    def keywords(self) -> dict[str, Value]:
        """The arguments to compile a target with: `compilation(target, combination.keywords)`."""
        return dict(self.items)

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.items)


@dataclass(frozen=True)
class Skipped:
    """Values that no combination has together, and the reason."""

    choices: Combination
    why: str

    def __str__(self) -> str:
        return f"{self.choices}: {self.why}" if self.choices.items else self.why


@dataclass(frozen=True)
class Space:
    """The possible combinations of choices on one machine."""

    names: tuple[str, ...]
    """in the order of the signature"""
    groups: tuple[tuple[Combination, ...], ...]
    """combinations of choices that depend on each other"""
    skipped: tuple[Skipped, ...] = ()
    defaults: Mapping[str, Value] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """The number of combinations."""
        return prod(map(len, self.groups))

    @property
    def default(self) -> Combination | None:
        """The combination of all defaults; None if it is not in the space."""
        if not self.count or any(name not in self.defaults for name in self.names):
            return None
        of_groups = [self._defaults(name for name, _ in group[0].items) for group in self.groups]
        is_possible = all(map(operator.contains, self.groups, of_groups))
        return self._defaults(self.names) if is_possible else None

    def _defaults(self, names: Iterable[str]) -> Combination:
        return Combination(tuple((name, self.defaults[name]) for name in names))

    def __iter__(self) -> Iterator[Combination]:
        return map(self.at, range(self.count))

    def at(self, number: int) -> Combination:
        """A combination by its number; the last group varies fastest."""
        found: dict[str, Value] = {}
        for group in reversed(self.groups):
            number, place = divmod(number, len(group))
            found |= group[place].keywords
        return Combination(tuple((name, found[name]) for name in self.names))

    def sample(self, most: int, seed: int = 0) -> list[Combination]:
        """All combinations, or `most` of them at random, the same ones for the same seed."""
        if self.count <= most:
            return list(self)
        chance, numbers = random.Random(seed), set[int]()
        while len(numbers) < most:
            numbers.add(chance.randrange(self.count))
        return [self.at(number) for number in sorted(numbers)]


def sizes_of(machine: Machine) -> dict[str, int]:
    """The sizes of a machine that expressions may use."""
    return {
        "devices": machine.devices,
        "hosts": machine.slices * machine.hosts,
        "gpus_per_host": machine.gpus_per_host,
    }


def space_of(choices: Sequence[Choice], machine: Machine, where: str = "") -> Space:
    """The combinations that a machine and a condition allow."""
    sizes = sizes_of(machine)
    skipped: list[Skipped] = []
    values = {one.name: _dividing(one, machine.devices, skipped) for one in choices}
    known = values | {name: (size,) for name, size in sizes.items() if name not in values}
    conditions = parse_where(where, known) if where else ()
    axes = tuple(one.name for one in choices if one.is_divisor)
    meshes = _meshes(axes, values, machine.devices, skipped) if len(axes) > 1 else None
    groups = []
    for names in _dependent([one.name for one in choices], axes, conditions):
        own = [one for one in conditions if one.names & set(names)]
        groups.append(_allowed(_together(names, values, axes, meshes), own, sizes, skipped))
    for condition in conditions:
        # One about the machine alone holds for all combinations, or for none.
        if not condition.names & set(values) and (why := _refusal(condition, sizes)):
            skipped.append(Skipped(Combination(()), why))
            groups.append(())
    defaults = _default_values(choices, machine.devices)
    names = tuple(one.name for one in choices)
    return Space(names, tuple(groups), tuple(skipped), defaults)


def _default_values(choices: Sequence[Choice], devices: int) -> dict[str, Value]:
    """The defaults; an axis whose default is None takes the devices that the others leave."""
    found = {one.name: one.default for one in choices if one.has_default}
    sizes = {one.name: found[one.name] for one in choices if one.is_divisor and one.has_default}
    taken = prod(int(size) for size in sizes.values() if size is not None)
    free = [name for name, size in sizes.items() if size is None]
    if len(free) == 1 and devices % taken == 0:
        found[free[0]] = devices // taken
    return found


def _dividing(choice: Choice, devices: int, skipped: list[Skipped]) -> tuple[Value, ...]:
    found = choice.values_on(devices)
    if not choice.is_divisor:
        return found
    for value in found:
        if devices % int(value or 1):
            why = f"{value} does not divide {devices} devices"
            skipped.append(Skipped(Combination(((choice.name, value),)), why))
    return tuple(value for value in found if devices % int(value or 1) == 0)


def _meshes(
    axes: tuple[str, ...],
    values: Mapping[str, tuple[Value, ...]],
    devices: int,
    skipped: list[Skipped],
) -> list[tuple[int, ...]]:
    """The sizes of the axes whose product is the number of devices."""
    allowed = [[int(value or 1) for value in values[name]] for name in axes]
    found = list(_factors(devices, allowed))
    for place, name in enumerate(axes):
        used = {mesh[place] for mesh in found}
        others = " × ".join(one for one in axes if one != name)
        for value in allowed[place]:
            if value not in used:
                why = f"no sizes of {others} make it a mesh of {devices} devices"
                skipped.append(Skipped(Combination(((name, value),)), why))
    return found


def _factors(devices: int, allowed: Sequence[Sequence[int]]) -> Iterator[tuple[int, ...]]:
    """One number from each list, with a product of `devices`."""
    first, *others = allowed
    if not others:
        yield from ((size,) for size in first if size == devices)
        return
    for size in first:
        if devices % size == 0:
            yield from ((size, *more) for more in _factors(devices // size, others))


def _dependent(
    names: Sequence[str], axes: tuple[str, ...], conditions: Sequence[Condition]
) -> list[tuple[str, ...]]:
    """The choices in groups: those that a mesh or a condition joins are in one."""
    groups = [{name} for name in names]
    for joined in (set(axes), *(set(one.names) for one in conditions)):
        touched = [group for group in groups if group & joined]
        if touched:
            rest = [group for group in groups if not group & joined]
            groups = [*rest, set[str]().union(*touched)]
    ordered = [tuple(name for name in names if name in group) for group in groups]
    return sorted(ordered, key=lambda group: names.index(group[0]))


def _together(
    names: tuple[str, ...],
    values: Mapping[str, tuple[Value, ...]],
    axes: tuple[str, ...],
    meshes: list[tuple[int, ...]] | None,
) -> Iterator[Combination]:
    """All combinations of a group of choices; axes come as meshes."""
    has_mesh = meshes is not None and axes[0] in names
    alone = [name for name in names if not (has_mesh and name in axes)]
    shapes: Sequence[tuple[int, ...]] = meshes if has_mesh and meshes is not None else [()]
    count = len(shapes) * prod(len(values[name]) for name in alone)
    if count > MOST_TOGETHER:
        raise BadInput(
            f"--where joins {', '.join(names)}, which have {count:,} combinations; expected at "
            f"most {MOST_TOGETHER:,}: give some of them fewer values with --vary"
        )
    for shape in shapes:
        mesh = dict(zip(axes, shape, strict=True)) if shape else {}
        for rest in product(*(values[name] for name in alone)):
            found: dict[str, Value] = {**mesh, **dict(zip(alone, rest, strict=True))}
            yield Combination(tuple((name, found[name]) for name in names))


def _allowed(
    combinations: Iterator[Combination],
    conditions: Sequence[Condition],
    sizes: Mapping[str, int],
    skipped: list[Skipped],
) -> tuple[Combination, ...]:
    found = []
    for one in combinations:
        values = {**sizes, **one.keywords}
        why = next((why for each in conditions if (why := _refusal(each, values))), "")
        if why:
            skipped.append(Skipped(one, why))
        else:
            found.append(one)
    return tuple(found)


def _refusal(condition: Condition, values: Mapping[str, Value]) -> str:
    """Why a condition rules values out; empty if it holds."""
    try:
        return "" if condition.holds(values) else f"--where: {condition.text} is not true"
    except ArithmeticError as error:
        return f"--where: {condition.text} can't be computed ({error})"
