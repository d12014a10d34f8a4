"""Which program a rank ran at which call, held against what the other ranks ran.

The ranks of a job meet inside their programs' collectives. If one ran another program at the same
call, NCCL would hang, or sum what does not belong together without a word. The consensus sees to it
that this can't happen; this shows that it did not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

LoggedCall = Sequence[int | str]
"""a call's number, and the name of the arm that it ran"""


class AuditLog:
    """Of one rank, since the last look at the times."""

    def __init__(self) -> None:
        self.entries: list[LoggedCall] = []

    def record(self, call: int, arm: str) -> None:
        self.entries.append((call, arm))

    def drain(self) -> list[LoggedCall]:
        """What was noted, for the others; then it begins anew."""
        noted, self.entries = self.entries, []
        return noted


def find_mismatch(books: Mapping[int, Sequence[LoggedCall]]) -> str | None:
    """The first call at which the ranks did not run the same, in words; None where they did."""
    first, *others = sorted(books)
    for rank in others:
        pairs = zip(books[first], books[rank], strict=False)
        for (call, arm), (other_call, other_arm) in pairs:
            if (call, arm) != (other_call, other_arm):
                return (
                    f"rank {first} ran {arm!r} at call {call} where rank {rank} ran {other_arm!r} "
                    f"at call {other_call}: what they summed from there on may be wrong"
                )
        if len(books[first]) != len(books[rank]):
            counts = f"{len(books[first])} and {len(books[rank])}"
            return f"ranks {first} and {rank} ran {counts} steps: what they summed may be wrong"
    return None
