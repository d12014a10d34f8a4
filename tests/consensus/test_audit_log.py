"""Ranks that did not run the same program at the same call are found out."""

import pytest

from slipstream.consensus.audit_log import AuditLog, find_mismatch

SAME = [[7, "original"], [8, "costs"]]


def test_a_page_holds_what_ran_since_the_last():
    book = AuditLog()
    book.record(7, "original")
    book.record(8, "costs")
    assert book.drain() == [(7, "original"), (8, "costs")]
    book.record(9, "costs")
    assert book.drain() == [(9, "costs")]


@pytest.mark.parametrize(
    ("other", "found"),
    [
        (SAME, None),
        (
            [[7, "original"], [8, "original"]],
            "rank 0 ran 'costs' at call 8 where rank 2 ran 'original' at call 8: "
            "what they summed from there on may be wrong",
        ),
        (
            [[8, "original"], [9, "costs"]],
            "rank 0 ran 'original' at call 7 where rank 2 ran 'original' at call 8: "
            "what they summed from there on may be wrong",
        ),
        (SAME[:1], "ranks 0 and 2 ran 2 and 1 steps: what they summed may be wrong"),
    ],
)
def test_the_first_contradiction_is_told(other, found):
    assert find_mismatch({0: SAME, 1: SAME, 2: other}) == found


def test_a_process_alone_contradicts_nobody():
    assert find_mismatch({0: SAME}) is None
