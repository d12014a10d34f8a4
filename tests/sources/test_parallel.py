"""Work on all cores, in order."""

from __future__ import annotations

import random
import threading
import time

import pytest

from slipstream.sources.parallel import in_order


def test_results_come_in_the_order_of_the_jobs() -> None:
    def run(job: int) -> int:
        time.sleep(random.random() / 1000)
        return job * job

    assert list(in_order(run, range(100))) == [i * i for i in range(100)]
    assert list(in_order(run, [])) == []


def test_what_a_job_raises_is_raised_in_its_place() -> None:
    begun: list[int] = []
    gate = threading.Event()

    def run(job: int) -> int:
        begun.append(job)
        if job == 3:
            gate.set()
            raise ValueError("three")
        # The others wait, or they might all be done before the third is looked at.
        if job > 3:
            gate.wait()
        return job

    results = in_order(run, range(1000))
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="three"):
        next(results)
    assert len(begun) < 1000
