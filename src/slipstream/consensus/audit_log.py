"""Which program each rank ran at which call, compared across ranks.

The ranks of a job meet inside their programs' collectives. If one rank ran another program at the
same call, NCCL would hang, or silently sum values that don't belong together. The consensus makes
this impossible; the audit log shows that it did not happen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

LoggedCall = Sequence[int | str]
"""the number of a call, and the name of the arm that ran"""


class AuditLog:
    """The calls of one rank since the ranks last compared their logs."""

    def __init__(self) -> None:
        self.entries: list[LoggedCall] = []

    def record(self, call: int, arm: str) -> None:
        self.entries.append((call, arm))

    def drain(self) -> list[LoggedCall]:
        """The recorded calls, for the other ranks; the log is empty afterwards."""
        recorded, self.entries = self.entries, []
        return recorded


def find_mismatch(logs: Mapping[int, Sequence[LoggedCall]]) -> str | None:
    """The first call at which ranks ran different arms, as a sentence; None if there is none."""
    first, *others = sorted(logs)
    for rank in others:
        pairs = zip(logs[first], logs[rank], strict=False)
        for (call, arm), (other_call, other_arm) in pairs:
            if (call, arm) != (other_call, other_arm):
                return (
                    f"rank {first} ran {arm!r} at call {call} where rank {rank} ran {other_arm!r} "
                    f"at call {other_call}: what they summed from there on may be wrong"
                )
        if len(logs[first]) != len(logs[rank]):
            counts = f"{len(logs[first])} and {len(logs[rank])}"
            return f"ranks {first} and {rank} ran {counts} steps: what they summed may be wrong"
    return None
