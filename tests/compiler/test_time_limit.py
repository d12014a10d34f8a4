"""Compiles that take too long are aborted, whenever there is something to abort."""

import os
import threading

import pytest

from slipstream.compiler.time_limit import TimeLimit, on_busy_cores

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


@pytest.mark.parametrize(
    ("tasks_per_core", "note"),
    [
        (0.9, ""),
        (8.0, " while this machine's cores were busy; give it more: --timeout 20m"),
    ],
)
def test_busy_cores_are_named_as_what_may_take_so_long(monkeypatch, tasks_per_core, note):
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, tasks_per_core * os.cpu_count(), 0.0))
    assert on_busy_cores(300.0) == note


def test_without_a_load_average_nothing_is_said(monkeypatch):
    def unknown():
        raise OSError

    monkeypatch.setattr(os, "getloadavg", unknown)
    assert on_busy_cores(300.0) == ""
