"""Candidates on a Ray cluster: screens in worker processes on other machines.

    search ─ thread ─┐                       ┌─ worker ─ screen ─ compiler     node 1
           ─ thread ─┼─ evaluate: any free ──┤
           ─ thread ─┘  worker takes it      └─ worker ─ screen ─ compiler     node 2

Only this process writes the study. If a worker dies, another one evaluates its candidate; workers
may join later, with new nodes.
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
from slipstream.tune.ray.worker import RunnerSpec, pack, versions, worker_class
from slipstream.tune.search.search import NoWorker

TRIES = 3
"""workers that may die on one candidate"""
FAILED_STARTS = 8
"""give up after this many consecutive workers that died while starting"""
POLL_S = 0.2
PING_S = 10.0
OUTLIVES_S = 1.0
"""a worker that is alive this long after its compiler died was not killed with its node"""
CLOSE_S = 5.0
SILENCE_S = 30.0
"""report if there is no worker for this long"""


@dataclass(eq=False)
class _Worker:
    actor: Any
    host: str = ""
    known: set[str] = field(default_factory=set)
    """programs whose outcomes it has"""


class Cluster:
    """Workers on a Ray cluster, each with one CPU and one screen."""

    def __init__(
        self,
        address: str,
        spec: RunnerSpec,
        *,
        jobs: int | None = None,
        budget_s: float = 600.0,
        seen: dict[str, Outcome] | None = None,
        progress: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._connection = Connection(address)
        self._ray = self._connection.ray
        self._spec = spec
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
        # Two concurrent calls, so that a worker can be closed while it evaluates a candidate.
        self._class = self._ray.remote(**options, max_concurrency=2)(worker_class())
        self._payload = self._ray.put(pack(self._spec))
        self._wanted = versions()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._connection.close()

    def size(self) -> int:
        """The limit of workers: one per CPU of the cluster, or fewer with --jobs."""
        cpus = self._connection.cpus()
        # At least one, even on an empty cluster: pending requests make an autoscaler add nodes.
        return max(1, min(cpus, self._jobs or cpus))

    @contextmanager
    def runner(self) -> Iterator[Cluster]:
        """The runner for a search; at the end the workers are stopped."""
        if self._end is None:
            self._end = time.monotonic() + self._budget_s + 1
        try:
            yield self
        finally:
            self._stop()

    def evaluate(self, settings: Any, name: str = "its candidate") -> Outcome:
        """Evaluate a candidate, as its runners understand it, on another worker if one dies.

        Progress calls it by its name. NoWorker if none is free in time.
        """
        reason = ""
        for _ in range(TRIES):
            worker = self._acquire()
            try:
                outcome = self._evaluate_on(worker, settings)
            except self._ray.exceptions.RayError as error:
                self._drop(worker)
                reason = f"{_short(error)} [on {worker.host}]"
                if self._is_closed.is_set():
                    raise NoWorker from None
                self._progress(f"lost a worker on {worker.host}; another one takes {name}")
            else:
                self._release(worker)
                return outcome
        return Outcome(
            CRASH, note=f"{TRIES} workers were lost while evaluating it; the last one: {reason}"
        )

    def _evaluate_on(self, worker: _Worker, settings: Any) -> Outcome:
        with self._changed:
            new = {name: self._seen[name] for name in self._seen.keys() - worker.known}
        outcomes = {name: outcome.to_json() for name, outcome in new.items()}
        answer = worker.actor.evaluate.remote(settings, outcomes)
        while not self._ray.wait([answer], timeout=1.0)[0]:
            if self._is_closed.is_set():
                raise NoWorker
        outcome = Outcome.from_json(self._ray.get(answer))
        worker.known |= new.keys()
        if outcome.status in (CRASH, OUT_OF_MEMORY):
            # When a node shuts down, the compiler may die first: check that the worker is alive.
            self._is_closed.wait(OUTLIVES_S)
            self._ray.get(worker.actor.ping.remote(), timeout=PING_S)
        if outcome.is_ok:
            with self._changed:
                self._seen.setdefault(outcome.program, outcome)
            worker.known.add(outcome.program)
        return outcome

    # The pool of workers.

    def _acquire(self) -> _Worker:
        """A free worker that responds."""
        reported = time.monotonic()
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
                # A worker that died while idle doesn't count against this candidate.
                with suppress(self._ray.exceptions.RayError):
                    self._ray.get(worker.actor.ping.remote(), timeout=PING_S)
                    return worker
                self._drop(worker)
            elif time.monotonic() > reported + SILENCE_S and not self._busy:
                reported = time.monotonic()
                self._progress(f"waiting for a worker: all {self._connection.cpus()} CPUs are busy")
        raise NoWorker

    def _start_worker(self) -> None:
        if len(self._starting) + len(self._idle) + len(self._busy) < self.size():
            worker = _Worker(self._class.remote())
            self._starting[worker.actor.start.remote(self._wanted, self._payload)] = worker

    def _collect_started(self) -> None:
        """Move workers that have started to the idle ones."""
        if not self._starting:
            return
        refs = list(self._starting)
        for ref in self._ray.wait(refs, num_returns=len(refs), timeout=0)[0]:
            worker = self._starting.pop(ref)
            try:
                answer = self._ray.get(ref)
            except self._ray.exceptions.RayError as error:
                self._count_failed_start(error)
                continue
            if answer["lacking"]:
                raise version_mismatch(answer, self._wanted)
            self._failed_starts = 0
            worker.host = answer["host"]
            self._idle.append(worker)
            self._report_size()

    def _count_failed_start(self, error: Exception) -> None:
        self._failed_starts += 1
        if self._failed_starts >= FAILED_STARTS:
            raise Missing(
                f"{FAILED_STARTS} workers in a row died while starting ({_short(error)}); see: ray "
                "status, and the logs of the nodes"
            )

    def _report_size(self) -> None:
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
        """Kill a worker that died or can't be reached."""
        self._ray.kill(worker.actor)
        with self._changed:
            self._busy.remove(worker)
            self._changed.notify()

    def _stop(self) -> None:
        """Close all workers, so that their compilers end and their files are removed."""
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
    """The error for a node with missing or different packages."""
    packages = " ".join(f"{name}=={release}" for name, release in wanted.items())
    return Missing(
        f"the Ray node {answer['host']} can't compile for this study: {answer['lacking']}; install "
        f"the same packages there: {answer['python']} -m pip install {packages}"
    )


def _short(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 300 else f"{text[:299]}…"
