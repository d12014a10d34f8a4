"""Hosts on one clock."""

from __future__ import annotations

from builders import profile
from slipstream.analyses.clocks import on_one_clock
from slipstream.profile.profile import Profile


def two_hosts(ahead_us: float) -> Profile:
    """Two ranks whose all-reduces end together; the second's clock is ahead."""
    built = profile()
    for rank in range(2):
        if rank:
            built.host("other").device("GPU:1").execution_of()
            built.at(ahead_us)
        for _ in range(4):
            # The second rank arrives later by 3, and waits less.
            built.kernel("dot.1", 10 + 3 * rank).all_reduce(9 - 3 * rank)
    return built.build()


def ends(found: Profile, device: int) -> list[int]:
    rows = [row for row in range(len(found.events)) if found.event_devices[row] == device]
    is_sum = [found.events.text("instruction", row) == "all-reduce.1" for row in rows]
    start, duration = found.events["start_ps"], found.events["duration_ps"]
    return [int(start[r] + duration[r]) for r, wanted in zip(rows, is_sum, strict=True) if wanted]


def test_collectives_end_together() -> None:
    read = two_hosts(ahead_us=500)
    assert ends(read, 0) != ends(read, 1)
    moved = on_one_clock(read)
    assert ends(moved, 0) == ends(moved, 1) == ends(read, 0)


def test_clocks_that_agree_stay() -> None:
    read = two_hosts(ahead_us=0)
    assert on_one_clock(read) is read
    alone = profile().kernel("dot.1", 10).build()
    assert on_one_clock(alone) is alone
