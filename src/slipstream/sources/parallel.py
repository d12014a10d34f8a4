"""Runs native code on all cores.

`concurrent.futures` does this too, but importing it takes as long as decoding a small profile.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")


def in_order(run: Callable[[Job], Result], jobs: Sequence[Job]) -> Iterator[Result]:
    """Results in the order of the jobs, which start at once and run on all cores.

    A job's exception is raised in place of its result; jobs not yet started are then dropped.
    """
    return iter(_Work(run, jobs))


class _Work(Generic[Job, Result]):
    def __init__(self, run: Callable[[Job], Result], jobs: Sequence[Job]) -> None:
        self.run, self.jobs = run, jobs
        self.results: dict[int, Result | BaseException] = {}
        self.started = 0
        self.changed = threading.Condition()
        count = min(os.cpu_count() or 1, len(jobs))
        self.threads = [threading.Thread(target=self._work, daemon=True) for _ in range(count)]
        for thread in self.threads:
            thread.start()

    def __iter__(self) -> Iterator[Result]:
        for index in range(len(self.jobs)):
            with self.changed:
                self.changed.wait_for(lambda index=index: index in self.results)  # type: ignore[misc]
                result = self.results.pop(index)
            if isinstance(result, BaseException):
                raise result
            yield result

    def _work(self) -> None:
        while (index := self._next()) is not None:
            result: Result | BaseException
            try:
                result = self.run(self.jobs[index])
            except BaseException as error:
                # Raised in the thread that iterates.
                result = error
            with self.changed:
                self.results[index] = result
                if isinstance(result, BaseException):
                    self.started = len(self.jobs)
                self.changed.notify_all()

    def _next(self) -> int | None:
        with self.changed:
            if self.started >= len(self.jobs):
                return None
            self.started += 1
            return self.started - 1
