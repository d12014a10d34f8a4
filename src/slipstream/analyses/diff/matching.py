"""Match the ops of two profiles, although XLA renamed, re-fused and reordered them.

The strongest evidence is tried first; what it leaves unmatched goes on to the next:

    work, origin and neighbours → work and origin → work → the same product by another kernel
      → the same purpose in another layout → fusions that share most of what is inside them

Ops with the same evidence are paired in schedule order. If their numbers differ but their
executions add up (an unrolled loop), all of them are one match. A match is a set of ops on either
side: one and one, one split into several, or several merged into one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from slipstream.analyses.diff.features import DiffOp

SAME, CHANGED, UNROLLED = "same", "changed", "unrolled"
SPLIT, MERGED, REGROUPED = "split", "merged", "regrouped"
NEW, GONE = "new", "gone"

LEAST_SHARED = 0.5
"""share of the smaller one's contents that two fusions must have in common to match"""
_ALIKE = 0.75
"""two fusions with this share of the larger one in common count as the same"""
_SAME_COUNT = 0.01

Key = Callable[[DiffOp], Hashable]


@dataclass(frozen=True, eq=False)
class Match:
    """Ops of one side, and the ops of the other side that do the same work."""

    kind: str
    before: tuple[DiffOp, ...]
    after: tuple[DiffOp, ...]
    evidence: str
    """what they were matched by; empty for ops that are new or gone"""

    @property
    def first(self) -> DiffOp:
        """The op that represents the match: the longest one, preferably of the `after` side."""
        return max(self.after or self.before, key=lambda item: item.samples.us)

    @property
    def is_group(self) -> bool:
        """Whether it is several matches of equal ops of unrolled layers."""
        is_single = self.kind in (SAME, CHANGED, NEW, GONE)
        return is_single and len(self.after or self.before) > 1


def _work(item: DiffOp, *more: Hashable) -> Hashable:
    return (item.work, *more) if item.work is not None else None


def _colour(item: DiffOp, rounds: int) -> int:
    return item.colours[rounds] if len(item.colours) > rounds else 0


def _of(value: Hashable, *more: Hashable) -> Hashable:
    """A key; None if its first part is unknown."""
    return (value, *more) if value not in (None, "", ()) else None


_TIERS: tuple[tuple[str, Key], ...] = (
    ("work, origin and neighbours",
     lambda i: _work(i, i.program_name, i.op_name, i.source, _colour(i, 3))),
    ("work, origin and neighbours",
     lambda i: _work(i, i.program_name, i.op_name, i.source, _colour(i, 2))),
    ("work, origin and neighbours", lambda i: _work(i, i.op_name, i.source, _colour(i, 1))),
    ("work and origin", lambda i: _work(i, i.op_name, i.source)),
    ("work and neighbours", lambda i: _work(i, _colour(i, 2))),
    ("work and origin", lambda i: _work(i, i.source, i.phase)),
    ("work and origin", lambda i: _work(i, i.op_name)),
    ("work", lambda i: _work(i, i.phase)),
    ("work", lambda i: _work(i)),
    ("product and origin", lambda i: _of(i.product, i.op_name, i.source)),
    ("product and origin", lambda i: _of(i.product, i.source, i.phase)),
    ("purpose and origin", lambda i: _of(i.shapeless, i.op_name, i.source)),
    ("product", lambda i: _of(i.product, i.phase)),
    ("product", lambda i: _of(i.product)),
    ("purpose", lambda i: _of(i.shapeless, i.phase) if i.source or i.op_name else None),
    ("name", lambda i: (i.program_name, i.name) if i.instruction is None else None),
    ("name", lambda i: i.name if i.instruction is None else None),
    ("name without its number", lambda i: i.label if i.instruction is None else None),
)  # fmt: skip


def match(before: Sequence[DiffOp], after: Sequence[DiffOp]) -> list[Match]:
    """Matches that contain every op of both sides exactly once."""
    matcher = _Matcher(before, after)
    for evidence, key in _TIERS:
        matcher.tier(evidence, key, is_same=evidence.startswith(("work", "name")))
    matcher.leftovers()
    matcher.contents()
    return matcher.result()


@dataclass(eq=False)
class _Group:
    before: list[DiffOp]
    after: list[DiffOp]
    evidence: str
    is_same: bool


class _Matcher:
    """The groups found so far, and the unmatched ops."""

    def __init__(self, before: Sequence[DiffOp], after: Sequence[DiffOp]) -> None:
        self.left = (list(before), list(after))
        self.groups: list[_Group] = []

    def tier(self, evidence: str, key: Key, is_same: bool) -> None:
        first, second = (_bucketed(side, key) for side in self.left)
        for value, old in first.items():
            new = second.get(value)
            if new:
                self._pair(old, new, evidence, is_same)
        self._forget_matched()

    def leftovers(self) -> None:
        """Equal work in unequal numbers: pair as many as possible, in order."""
        first, second = (_bucketed(side, lambda i: _work(i)) for side in self.left)
        for value, old in first.items():
            for one, other in zip(old, second.get(value, ()), strict=False):
                self.groups.append(_Group([one], [other], "work", True))
        self._forget_matched()

    def contents(self) -> None:
        """Differently cut fusions: each joins the op of the other side with the most in common.

        Products matched with another kernel also take in what used to be fused to them.
        """
        changed = [group for group in self.groups if not group.is_same]
        old = self.left[0] + [item for group in changed for item in group.before]
        new = self.left[1] + [item for group in changed for item in group.after]
        home = {id(item): group for group in changed for item in (*group.before, *group.after)}
        for items, others, is_after in ((self.left[0], new, False), (self.left[1], old, True)):
            by_token = _by_token(others)
            for item in items:
                other = _most_alike(item, by_token, home) if id(item) not in home else None
                if other is not None:
                    self._join(item, other, is_after, home)
        self._forget_matched()

    def result(self) -> list[Match]:
        found = [
            Match(_kind(group), tuple(group.before), tuple(group.after), group.evidence)
            for group in self.groups
        ]
        found += [Match(GONE, (item,), (), "") for item in self.left[0]]
        return found + [Match(NEW, (), (item,), "") for item in self.left[1]]

    def _pair(self, old: list[DiffOp], new: list[DiffOp], evidence: str, is_same: bool) -> None:
        if abs(_runs(old) - _runs(new)) > _SAME_COUNT * _runs(old):
            return  # weaker evidence will find the rest
        if len(old) == len(new):
            for one, other in zip(old, new, strict=True):
                self.groups.append(_Group([one], [other], evidence, is_same))
        else:
            self.groups.append(_Group(old, new, evidence, is_same))

    def _join(self, item: DiffOp, other: DiffOp, is_after: bool, home: dict[int, _Group]) -> None:
        """Add an op to the group of the most similar op, or open a group for both."""
        group = home.get(id(other))
        if group is None:
            group = _Group([], [], "", False)
            (group.before if is_after else group.after).append(other)
            self.groups.append(group)
        (group.after if is_after else group.before).append(item)
        group.evidence = "shared contents"
        home[id(item)] = home[id(other)] = group

    def _forget_matched(self) -> None:
        used = {id(item) for group in self.groups for item in (*group.before, *group.after)}
        before, after = ([i for i in side if id(i) not in used] for side in self.left)
        self.left = (before, after)


def _bucketed(items: Sequence[DiffOp], key: Key) -> dict[Hashable, list[DiffOp]]:
    found: dict[Hashable, list[DiffOp]] = {}
    for item in items:
        value = key(item)
        if value is not None:
            found.setdefault(value, []).append(item)
    return found


def _runs(items: Sequence[DiffOp]) -> float:
    return sum(item.executions for item in items)


def _by_token(items: Sequence[DiffOp]) -> dict[Hashable, list[DiffOp]]:
    found: dict[Hashable, list[DiffOp]] = {}
    for item in items:
        for token in item.contents:
            found.setdefault(token, []).append(item)
    return found


def _most_alike(
    item: DiffOp, by_token: dict[Hashable, list[DiffOp]], home: dict[int, _Group]
) -> DiffOp | None:
    """The op with the most contents in common, if those are most of the smaller one's.

    Of several similar ones (such as layers), a free one, and of those the nearest in the schedule.
    """
    shared: dict[int, int] = {}
    known: dict[int, DiffOp] = {}
    for token, weight in item.contents.items():
        for other in by_token.get(token, ()):
            known[id(other)] = other
            shared[id(other)] = shared.get(id(other), 0) + min(weight, other.contents[token])
    own = sum(item.contents.values())

    def score(other: DiffOp) -> tuple[float, float, bool, float]:
        size, weight = sum(other.contents.values()), shared[id(other)]
        near = -abs(other.order - item.order)
        # Several ops may have become one if they are not nearly equal: then only nearness counts.
        is_free = id(other) not in home or weight < _ALIKE * max(own, size)
        return weight / min(own, size), weight / max(own, size), is_free, near

    best = max(known.values(), key=score, default=None)
    return best if best is not None and score(best)[0] >= LEAST_SHARED else None


def _kind(group: _Group) -> str:
    old, new = len(group.before), len(group.after)
    if group.is_same:
        return SAME if old == new == 1 else UNROLLED
    if old == new == 1:
        return CHANGED
    if old == 1:
        return SPLIT
    return MERGED if new == 1 else REGROUPED
