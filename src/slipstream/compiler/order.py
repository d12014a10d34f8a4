"""An order: the sequence of each computation that is to run in another one than XLA's.

It belongs to one program. XLA's own fingerprint, taken before it schedules, says to which; the
names of the instructions have to be the same, too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from slipstream.analyses.hazards import hazards_of
from slipstream.costs.table import MOST_US, Cost, CostTable, ProgramCosts
from slipstream.errors import BadInput
from slipstream.profile.attribution.launch_sequence import launches_nothing
from slipstream.profile.program import Computation, Program
from slipstream.reading import damage, read_object
from slipstream.remote.paths import any_path
from slipstream.writing import atomic_write

FORMAT = "slipstream-order"
VERSION = 1
NEXT_STEP = "make an order of this program: slipstream schedule"


@dataclass(frozen=True)
class Order:
    """Names of instructions in the order in which they are to run, by computation."""

    sequences: Mapping[str, tuple[str, ...]]
    fingerprint: str | None
    """of the program before it was scheduled, as XLA states it"""
    program: str = ""
    flags: Mapping[str, str] = field(default_factory=dict)
    """that the program was compiled with"""
    costs: Mapping[str, float] = field(default_factory=dict)
    """microseconds that XLA's own scheduler is given, where no sequences are"""

    @property
    def cost_table(self) -> CostTable | None:
        """The costs as XLA reads them; None if there are none."""
        if not self.costs:
            return None
        costs = {name: Cost(name, us) for name, us in self.costs.items()}
        return CostTable((ProgramCosts(self.fingerprint, self.program, costs),))

    def applied(self, program: Program) -> Program:
        """The program in this order; BadInput if the order is another program's, or impossible."""
        self.check(program)
        computations = dict(program.computations)
        for name, sequence in self.sequences.items():
            computations[name] = _in_order(program.computations[name], sequence)
        return replace(program, entry=computations[program.entry.name], computations=computations)

    def check(self, program: Program) -> None:
        """BadInput unless this is a possible order of exactly this program's instructions.

        The program is as XLA's scheduler left it: accesses to one buffer keep that order.
        """
        if self.fingerprint and program.fingerprint and self.fingerprint != program.fingerprint:
            raise BadInput(
                f"the order is for a program with fingerprint {self.fingerprint}, and this one has "
                f"{program.fingerprint}: it was compiled from other code, flags or versions; "
                f"{NEXT_STEP}"
            )
        kept = hazards_of(program)
        for name, sequence in self.sequences.items():
            computation = program.computations.get(name)
            if computation is None:
                raise BadInput(
                    f"the order is of {name}, which {program.name} doesn't have; {NEXT_STEP}"
                )
            _refuse_impossible(computation, sequence, kept.get(name, ()))

    def is_obeyed(self, compiled: Program, source: Program) -> bool:
        """Whether a compiled program runs its instructions in this order.

        `source` is the program that the order was made of. After it has scheduled, XLA drops and
        moves instructions that launch nothing, and makes one collective of a start and a done
        between which nothing is launched.
        """
        for name, sequence in self.sequences.items():
            made = compiled.computations.get(name)
            if made is None:
                return False
            asked = _launched(source, sequence)
            kept = {one.name for one in made.instructions}
            if [one.name for one in made.instructions if one.name in asked] != [
                one for one in asked if one in kept
            ]:
                return False
            if not all(_is_one_collective(source, asked, one) for one in asked if one not in kept):
                return False
        return True

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write the order as JSON."""
        content = {
            "format": FORMAT,
            "version": VERSION,
            "program": self.program,
            "fingerprint": self.fingerprint,
            "flags": dict(self.flags),
            "costs": dict(self.costs),
            "sequences": {name: list(one) for name, one in self.sequences.items()},
        }
        with atomic_write(path) as temporary:
            temporary.write_text(json.dumps(content), encoding="utf-8")
        return any_path(path)


def _launched(program: Program, sequence: Sequence[str]) -> dict[str, int]:
    """What is launched or waited for, with its place among them."""
    ones = (program.instruction(name) for name in sequence)
    heavy = [one.name for one in ones if one.is_done or not launches_nothing(one)]
    return {name: place for place, name in enumerate(heavy)}


def _is_one_collective(program: Program, places: Mapping[str, int], name: str) -> bool:
    """Whether between a collective's start and its done nothing but collectives are launched."""
    partner = program.partner(name)
    if partner is None or partner.name not in places:
        return False
    first, last = sorted((places[name], places[partner.name]))
    between = list(places)[first + 1 : last]
    return all(_of_collective(program, one) for one in between)


def _of_collective(program: Program, name: str) -> bool:
    one = program.instruction(name)
    start = program.partner(name) if one.is_done else one
    return start is not None and program.collective_of(start) is not None


def read_order(path: str | os.PathLike[str]) -> Order:
    """Read what `Order.write` wrote; BadInput for anything else."""
    expected = "an order that `slipstream schedule -o` wrote"
    data = read_object(path, expected)
    with damage(f"{path}", expected, next_step="make it again"):
        return _order_of(data)


def _order_of(data: Mapping[str, Any]) -> Order:
    """Raises what `damage` catches."""
    if data["format"] != FORMAT or int(data["version"]) > VERSION:
        raise ValueError(f"format {data['format']!r}, version {data['version']!r}")
    fingerprint, sequences = data["fingerprint"], data["sequences"]
    if not isinstance(fingerprint, str | None):
        raise TypeError(f"the fingerprint {fingerprint!r}")
    for name, sequence in sequences.items():
        if not isinstance(sequence, list):
            raise TypeError(f"{sequence!r:.60} as the sequence of {name}")
    costs = {str(name): float(us) for name, us in data.get("costs", {}).items()}
    for name, us in costs.items():
        if not 0 <= us <= MOST_US:
            raise ValueError(f"a cost of {us:g} µs for {name}")
    return Order(
        {str(name): tuple(map(str, one)) for name, one in sequences.items()},
        fingerprint,
        str(data["program"]),
        {str(name): str(value) for name, value in data["flags"].items()},
        costs,
    )


def _in_order(computation: Computation, sequence: Sequence[str]) -> Computation:
    placed = tuple(
        replace(computation.by_name[name], position=place) for place, name in enumerate(sequence)
    )
    root = next(one for one in placed if one.name == computation.root.name)
    return Computation(computation.name, placed, root)


def _refuse_impossible(
    computation: Computation, sequence: Sequence[str], kept: Iterable[tuple[str, str]]
) -> None:
    by_name = computation.by_name
    listed = set(sequence)
    if len(listed) != len(sequence) or listed != by_name.keys():
        other = sorted(listed ^ by_name.keys())[:3]
        raise BadInput(
            f"the order of {computation.name} has {len(sequence)} instructions, and the program "
            f"{len(by_name)}, each once"
            + (f"; different: {', '.join(other)}" if other else "")
            + f"; {NEXT_STEP}"
        )
    seen: set[str] = set()
    for name in sequence:
        one = by_name[name]
        for needed in (*one.operands, *one.control_predecessors):
            if needed in by_name and needed not in seen:
                raise BadInput(
                    f"the order of {computation.name} has {name} before {needed}, which it needs; "
                    f"{NEXT_STEP}"
                )
        seen.add(name)
    place = {name: number for number, name in enumerate(sequence)}
    for name, before in kept:
        if name in place and before in place and place[name] < place[before]:
            raise BadInput(
                f"the order of {computation.name} has {name} before {before}, and both use one "
                f"buffer: results would differ; {NEXT_STEP}"
            )
