"""Candidates on a Ray cluster: the same screens, in processes on other machines.

    search ─ thread ─┐                       ┌─ worker ─ screen ─ compiler     node 1
           ─ thread ─┼─ evaluate: whoever ────┤
           ─ thread ─┘  is free takes it     └─ worker ─ screen ─ compiler     node 2

Only this process writes the study. A worker that dies takes no result with it: its candidate is
handed to another, which a later node may have brought.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from slipstream.errors import Missing
from slipstream.results.tuning import CRASH, OUT_OF_MEMORY
from slipstream.tune.outcome import Outcome
from slipstream.tune.ray.connection import Connection
from slipstream.tune.ray.worker import pack, versions, worker_class
from slipstream.tune.search.screen import ScreenSpec
from slipstream.tune.search.search import CandidateRunner, NoWorker

TRIES = 3
"""workers that may die over one candidate"""
FAILED_STARTS = 8
"""workers in a row that died before they had begun"""
POLL_S = 0.2
PING_S = 10.0
OUTLIVES_S = 1.0
"""by which a worker outlives its compiler, unless the whole node goes down"""
CLOSE_S = 5.0
SILENCE_S = 30.0
"""without a worker for so long, something is said"""


@dataclass(eq=False)
class _Worker:
    actor: Any
    host: str = ""
    told: set[str] = field(default_factory=set)
    """programs that it knows the outcome of"""


class Cluster:
    """Workers on a Ray cluster, each with a CPU and a screen; a trial takes whoever is free."""

    def __init__(
        self,
        address: str,
        recipe: ScreenSpec,
        *,
        jobs: int | None = None,
        budget_s: float = 600.0,
        seen: dict[str, Outcome] | None = None,
        progress: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._connection = Connection(address)
        self._ray = self._connection.ray
        self._recipe = recipe
        self._jobs = jobs
        self._budget_s = budget_s
        self._end: float | None = None
        self._seen = seen if seen is not None else {}
        self._progress = progress
        self._is_closed = threading.Event()
        self._changed = threading.Condition()
        self._starting: dict[Any, _Worker] = {}
        self._idle: list[_Worker] = []
        self._busy: list[_Worker] = []
        self._failed_starts = 0

    def __enter__(self) -> Cluster:
        self._connection.open()
        options = {"num_cpus": 1, "max_restarts": 0, "max_task_retries": 0}
        # Two calls at once: a worker can be closed while it tries a candidate out.
        self._class = self._ray.remote(**options, max_concurrency=2)(worker_class())
        self._parcel = self._ray.put(pack(self._recipe))
        self._wanted = versions()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._connection.close()

    def size(self) -> int:
        """How many workers there may be: one for each CPU of the cluster, or as many as asked."""
        cpus = self._connection.cpus()
        # One is asked for even of an empty cluster: that is what makes one grow.
        return max(1, min(cpus, self._jobs or cpus))

    @contextmanager
    def runner(self) -> Iterator[CandidateRunner]:
        """For a search; at its end the workers go."""
        if self._end is None:
            self._end = time.monotonic() + self._budget_s + 1
        try:
            yield self
        finally:
            self._stop()

    def evaluate(self, settings: Mapping[str, str]) -> Outcome:
        """One candidate, on another worker if its own dies; NoWorker if none is free in time."""
        reason = ""
        for _ in range(TRIES):
            worker = self._taken()
            try:
                outcome = self._tried(worker, settings)
            except self._ray.exceptions.RayError as error:
                self._drop(worker)
                reason = f"{_short(error)} [on {worker.host}]"
                if self._is_closed.is_set():
                    raise NoWorker from None
                self._progress(f"a worker on {worker.host} was lost; another takes its candidate")
            else:
                self._release(worker)
                return outcome
        return Outcome(CRASH, note=f"{TRIES} workers were lost over it; the last: {reason}")

    def _tried(self, worker: _Worker, settings: Mapping[str, str]) -> Outcome:
        with self._changed:
            news = {name: self._seen[name] for name in self._seen.keys() - worker.told}
        known = {name: outcome.to_json() for name, outcome in news.items()}
        answer = worker.actor.evaluate.remote(dict(settings), known)
        while not self._ray.wait([answer], timeout=1.0)[0]:
            if self._is_closed.is_set():
                raise NoWorker
        outcome = Outcome.from_json(self._ray.get(answer))
        worker.told |= news.keys()
        if outcome.status in (CRASH, OUT_OF_MEMORY):
            # Where a node is shut down, the compiler may be the first to go.
            self._is_closed.wait(OUTLIVES_S)
            self._ray.get(worker.actor.ping.remote(), timeout=PING_S)
        if outcome.is_ok:
            with self._changed:
                self._seen.setdefault(outcome.program, outcome)
            worker.told.add(outcome.program)
        return outcome

    # Who is there.

    def _taken(self) -> _Worker:
        """A worker that is free, and answers."""
        said = time.monotonic()
        while not self._is_closed.is_set() and time.monotonic() < (self._end or 0):
            with self._changed:
                self._collect_started()
                worker = self._idle.pop() if self._idle else None
                if worker is None:
                    self._start_worker()
                    self._changed.wait(POLL_S)
                else:
                    self._busy.append(worker)
            if worker is not None:
                # One that died while it had nothing to do must not count as lost over this.
                with suppress(self._ray.exceptions.RayError):
                    self._ray.get(worker.actor.ping.remote(), timeout=PING_S)
                    return worker
                self._drop(worker)
            elif time.monotonic() > said + SILENCE_S and not self._busy:
                said = time.monotonic()
                self._progress(f"no worker yet: {self._connection.cpus()} CPUs, all of them taken")
        raise NoWorker

    def _start_worker(self) -> None:
        if len(self._starting) + len(self._idle) + len(self._busy) < self.size():
            worker = _Worker(self._class.remote())
            self._starting[worker.actor.start.remote(self._wanted, self._parcel)] = worker

    def _collect_started(self) -> None:
        """Those who are ready by now."""
        if not self._starting:
            return
        refs = list(self._starting)
        for ref in self._ray.wait(refs, num_returns=len(refs), timeout=0)[0]:
            worker = self._starting.pop(ref)
            try:
                answer = self._ray.get(ref)
            except self._ray.exceptions.RayError as error:
                self._failed(error)
                continue
            if answer["lacking"]:
                raise version_mismatch(answer, self._wanted)
            self._failed_starts = 0
            worker.host = answer["host"]
            self._idle.append(worker)
            self._say_size()

    def _failed(self, error: Exception) -> None:
        self._failed_starts += 1
        if self._failed_starts >= FAILED_STARTS:
            raise Missing(
                f"{FAILED_STARTS} workers in a row died as they started ({_short(error)}); see: "
                "ray status, and the logs of its nodes"
            )

    def _say_size(self) -> None:
        hosts = [worker.host for worker in (*self._idle, *self._busy)]
        count, places = len(hosts), len(set(hosts))
        workers = f"{count} worker{'s' if count > 1 else ''}"
        self._progress(f"{workers} on {places} host{'s' if places > 1 else ''} of the Ray cluster")

    def _release(self, worker: _Worker) -> None:
        with self._changed:
            self._busy.remove(worker)
            self._idle.append(worker)
            self._changed.notify()

    def _drop(self, worker: _Worker) -> None:
        """A worker that died, or can't be reached; if it comes back, it ends."""
        self._ray.kill(worker.actor)
        with self._changed:
            self._busy.remove(worker)
            self._changed.notify()

    def _stop(self) -> None:
        """Compilers end and their files go, wherever they are."""
        self._is_closed.set()
        with self._changed:
            ready = [*self._idle, *self._busy]
            workers = [*ready, *self._starting.values()]
            self._idle, self._starting = [], {}
            self._changed.notify_all()
        if ready:
            asked = [worker.actor.close.remote() for worker in ready]
            self._ray.wait(asked, num_returns=len(asked), timeout=CLOSE_S)
        for worker in workers:
            self._ray.kill(worker.actor)


def version_mismatch(answer: Mapping[str, str], wanted: Mapping[str, str]) -> Missing:
    """The error for a node that lacks something."""
    packages = " ".join(f"{name}=={release}" for name, release in wanted.items())
    return Missing(
        f"the Ray node {answer['host']} can't compile for this study: {answer['lacking']}; install "
        f"there what is here: {answer['python']} -m pip install {packages}"
    )


def _short(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 300 else f"{text[:299]}…"
