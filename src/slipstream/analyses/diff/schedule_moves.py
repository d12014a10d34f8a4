"""Changes of the schedule: where collectives and copies start and end, and what hides them.

compute      ██ a ██ b ██ c ██ d ██          before   start ─ a ─ b ─ done      covers a, b
collective      ▒▒▒▒▒▒▒▒▒▒                   after    start ─ a ─ b ─ c ─ done  gained c
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from slipstream.analyses.diff.features import DiffOp
from slipstream.analyses.diff.matching import Match
from slipstream.profile.attribution.launch_sequence import launches_nothing
from slipstream.profile.events import median
from slipstream.profile.program import Instruction
from slipstream.profile.semantics.layers import rolled_description


@dataclass(frozen=True)
class Placement:
    """A collective or copy in one of the two schedules; times are of the median step."""

    instructions: tuple[str, ...]
    us: float
    exposed_us: float
    """time without concurrent compute; for a copy, without compute or communication"""
    is_inline: bool
    """whether it ran on a stream that mostly computes"""
    covers: int | None
    """number of compute instructions between its start and its done; None if unknown"""


@dataclass(frozen=True)
class Move:
    """A collective or copy, and how its exposed time and its place in the schedule changed."""

    kind: str
    source: str
    description: str
    before: Placement | None
    after: Placement | None
    gained: tuple[str, ...]
    """compute that is between its start and its done only now, by its new names"""
    lost: tuple[str, ...]
    """compute that was between them only before, by its old names"""
    per_step_count: float = 0.0
    """executions in one step of one device: after, or before if it is gone"""

    @property
    def change_us(self) -> float:
        """How much more of it is exposed than before."""
        exposed = [side.exposed_us if side else 0.0 for side in (self.before, self.after)]
        return exposed[1] - exposed[0]


def placement(items: Sequence[DiffOp]) -> Placement | None:
    """The placement of some ops; None if they are neither collectives nor copies."""
    if not items or all(item.samples.kind == "compute" for item in items):
        return None
    windows = [window(item) for item in items]
    covers = None if None in windows else sum(len(w) for w in windows if w is not None)
    return Placement(
        tuple(item.name for item in items),
        sum(item.samples.us for item in items),
        float(median(np.sum([item.samples.cost_us for item in items], axis=0))),
        all(item.samples.is_inline for item in items),
        covers,
    )


def window(item: DiffOp) -> tuple[str, ...] | None:
    """The compute instructions between an operation's start and its done; None if unknown."""
    program, start = item.program, item.instruction
    if program is None or start is None:
        return None
    if not start.is_start:
        return ()
    done = program.partner(start.name)
    if done is None or done.computation != start.computation:
        return None
    between = program.computations[start.computation].instructions
    first, last = sorted((start.position, done.position))
    return tuple(
        i.name
        for i in between
        if first < i.position < last and not launches_nothing(i) and _computes(i)
    )


def _computes(instruction: Instruction) -> bool:
    return not (instruction.is_start or instruction.is_done or instruction.collective)


def moves(matches: Sequence[Match]) -> tuple[Move, ...]:
    """Collectives and copies, by change of exposed time, largest first."""
    names = tuple(
        {(item.program_name, item.name): n for n, items in _sides(matches, side) for item in items}
        for side in (0, 1)
    )
    found = []
    for one in matches:
        before, after = placement(one.before), placement(one.after)
        if before is None and after is None:
            continue
        op = one.first.samples.op
        changed = _window_change(one, names)
        text = rolled_description(op.description) if one.is_group else op.description
        count = sum(item.samples.executions for item in one.after or one.before)
        found.append(Move(op.category, op.source, text, before, after, *changed, count))
    found.sort(key=lambda move: (-abs(move.change_us), -len(move.gained) - len(move.lost)))
    return tuple(found)


def _sides(matches: Sequence[Match], side: int) -> list[tuple[int, tuple[DiffOp, ...]]]:
    return [(number, (one.before, one.after)[side]) for number, one in enumerate(matches)]


def _window_change(
    match: Match, names: tuple[Mapping[tuple[str, str], int], ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(compute gained between start and done, compute lost); empty if either is unknown."""
    covered: list[dict[int, str]] = []
    for side, items in enumerate((match.before, match.after)):
        windows = [(item, window(item)) for item in items]
        if not items or any(found is None for _, found in windows):
            return (), ()
        covered.append(
            {
                names[side][key]: name
                for item, found in windows
                for name in found or ()
                if (key := (item.program_name, name)) in names[side]
            }
        )
    old, new = covered
    gained = tuple(name for number, name in new.items() if number not in old)
    return gained, tuple(name for number, name in old.items() if number not in new)


def out_of_order(matches: Sequence[Match]) -> int:
    """Number of ops that would have to move for both schedules to be in the same order."""
    pairs = sorted(
        (m.before[0].program_name, m.before[0].order, m.after[0].order)
        for m in matches
        if len(m.before) == len(m.after) == 1 and m.before[0].instruction is not None
    )
    moved = 0
    for program in {pair[0] for pair in pairs}:
        orders = [after for name, _, after in pairs if name == program]
        tails: list[int] = []
        for order in orders:
            at = bisect_right(tails, order)
            tails[at : at + 1] = [order]
        moved += len(orders) - len(tails)
    return moved
