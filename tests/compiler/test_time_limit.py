"""Compiles that take too long are aborted, whenever there is something to abort."""

import threading

from slipstream.compiler.time_limit import TimeLimit

LONGEST_S = 300.0


def test_a_block_is_aborted_until_it_ends():
    attempts, ended = [], threading.Event()

    def abort():
        attempts.append(1)
        if len(attempts) == 3:  # before, there is nothing to abort
            ended.set()

    with TimeLimit(0.0, abort) as limit:
        assert ended.wait(LONGEST_S)
    assert limit.is_passed
    count = len(attempts)
    assert not limit._thread.is_alive() and len(attempts) == count >= 3


def test_a_block_that_ends_in_time_is_not_aborted():
    attempts = []
    with TimeLimit(LONGEST_S, lambda: attempts.append(1)) as limit:
        pass
    assert (limit.is_passed, attempts) == (False, [])
