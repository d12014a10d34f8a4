"""The search: workers ask the study for candidates, evaluate them and tell it the outcomes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from itertools import islice
from typing import Protocol

from slipstream.tune.outcome import Outcome
from slipstream.tune.search.seeds import SIMPLIFY, Suggestion
from slipstream.tune.search.study import Candidate, Study, TrialRow
from slipstream.tune.search.trial_owner import UNOWNED_S

PATIENCE = 50
"""stop after this many consecutive candidates without an improvement"""
BETTER = 0.001
"""minimum relative improvement"""
COUNTED = "candidates were tried"
LEAVE_S = 10.0
"""how long to wait for a worker whose runner was ended"""
QUEUED = 4
"""suggestions that are queued at a time"""
SIMPLIFY_SHARE = 5
"""one in this many trials is reserved for simplifying the best at the end"""


class CandidateRunner(Protocol):
    """Evaluates candidates, one at a time."""

    def evaluate(self, settings: Mapping[str, str]) -> Outcome: ...


class NoWorker(Exception):
    """No worker was free in time; the candidate stays in the queue."""


MakeRunner = Callable[[], AbstractContextManager[CandidateRunner]]
"""makes the runner of one worker"""
OnResult = Callable[[Candidate, Outcome], None]


class Search:
    """Workers on one study: threads, whose runners start processes (compilers, jobs)."""

    def __init__(
        self,
        study: Study,
        make_runner: MakeRunner,
        *,
        trials: int,
        budget_s: float,
        jobs: int | Callable[[], int] = 1,
        on_result: OnResult = lambda candidate, outcome: None,
        simplifies: bool = True,
        suggestions: Iterable[Suggestion] = (),
    ) -> None:
        """`suggestions` are tried, in this order, before the study proposes anything."""
        self._study = study
        self._suggestions = iter(suggestions)
        self._make_runner = make_runner
        self._trials = trials
        self._end = time.monotonic() + budget_s
        self._budget_s = budget_s
        self._jobs = jobs if callable(jobs) else lambda: jobs
        """the current limit of workers"""
        self._on_told = on_result
        self._simplifies = simplifies
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._why = ""
        self._errors: list[BaseException] = []
        self._threads: list[threading.Thread] = []
        self._stack = ExitStack()
        self._idle: list[CandidateRunner] = []
        """runners, with their processes, for later workers to reuse"""

    def run(self) -> str:
        """Search until the budget is spent or nothing is left; returns the reason to stop."""
        try:
            with self._stack:
                why = self._run_phases()
        finally:
            # An interrupt ends the runners; workers waiting for them release their candidates.
            self._stop.set()
            for thread in self._threads:
                thread.join(LEAVE_S)
        if self._errors:
            raise self._errors[0]
        return f"{len(_taken(self._study.rows()))} {COUNTED}" if why == COUNTED else why

    def _run_phases(self) -> str:
        reserve = min(self._trials // SIMPLIFY_SHARE, 12) if self._simplifies else 0
        try:
            self._run_workers(self._trials - reserve, has_patience=True)
            why = self._why
            if self._simplifies and time.monotonic() < self._end and not self._errors:
                self._simplify()
                if why == COUNTED:
                    self._use_reserve()
        except KeyboardInterrupt:
            # Set before the runners end, so that their failures don't count as outcomes.
            self._stop.set()
            raise
        return why

    def _use_reserve(self) -> None:
        """Trials reserved for simplifying and not needed: half to the search, half for its best."""
        while (left := self._left()) > 0 and not self._errors:
            self._run_workers(self._trials - left // 2, has_patience=True)
            if self._why != COUNTED:
                return
            self._simplify()

    def _left(self) -> int:
        return self._trials - len(_taken(self._study.rows()))

    def _simplify(self) -> None:
        """Try the best without each of its settings, and drop those that make no difference."""
        for _ in range(2):
            rows = self._study.rows()
            if any(row.state == "waiting" for row in rows):
                # Seeds are still waiting, so there is no best to simplify yet.
                return self._run_workers(self._trials, has_patience=False, only_waiting=True)
            best = best_row(rows, self._study.objective)
            if best is None or not best.settings:
                return
            reduced = [Suggestion(_without(best.settings, [n]), SIMPLIFY) for n in best.settings]
            self._study.enqueue(reduced[: max(self._left(), 0)])
            self._run_workers(self._trials, has_patience=False, only_waiting=True)
            rows, objective = self._study.rows(), self._study.objective
            unneeded = [n for n in best.settings if _is_unneeded(rows, best, n, objective)]
            if len(unneeded) < 2 or self._left() <= 0:
                return
            self._study.enqueue([Suggestion(_without(best.settings, unneeded), SIMPLIFY)])
            self._run_workers(self._trials, has_patience=False, only_waiting=True)

    def _run_workers(self, most: int, *, has_patience: bool, only_waiting: bool = False) -> None:
        self._why = ""
        self._threads = threads = list[threading.Thread]()
        while True:
            # The limit may grow (with a cluster): start more workers while there is work.
            while not (self._why or self._stop.is_set()) and len(threads) < self._jobs():
                arguments = (most, has_patience, only_waiting)
                threads.append(threading.Thread(target=self._work, args=arguments, daemon=True))
                threads[-1].start()
            alive = [thread for thread in threads if thread.is_alive()]
            if not alive:
                return
            alive[0].join(0.2)

    def _work(self, most: int, has_patience: bool, only_waiting: bool) -> None:
        try:
            runner: CandidateRunner | None = None
            while (candidate := self._next(most, has_patience, only_waiting)) is not None:
                runner = runner or self._take_runner()
                self._try(runner, candidate)
            if runner is not None:
                self._idle.append(runner)
        except BaseException as error:
            # Stop the other workers; `run` raises the error.
            self._errors.append(error)
            self._stop.set()

    def _try(self, runner: CandidateRunner, candidate: Candidate) -> None:
        try:
            outcome = runner.evaluate(candidate.settings)
        except NoWorker:
            return self._study.release(candidate)
        except BaseException:
            self._study.release(candidate)
            raise
        if self._stop.is_set():
            return self._study.release(candidate)
        self._study.tell(candidate, outcome)
        self._on_told(candidate, outcome)

    def _take_runner(self) -> CandidateRunner:
        with self._lock:
            return (
                self._idle.pop() if self._idle else self._stack.enter_context(self._make_runner())
            )

    def _next(self, most: int, has_patience: bool, only_waiting: bool) -> Candidate | None:
        with self._lock:
            while True:
                self._enqueue_some(only_waiting)
                rows = self._study.rows()
                if why := self._reason_to_stop(rows, most, has_patience, only_waiting):
                    if self._is_uncertain():
                        time.sleep(0.5)
                        self._study.requeue_dead()
                        continue
                    self._why = self._why or why
                    return None
                candidate = self._study.ask()
                if candidate is None:
                    self._why = self._why or "the search proposes nothing new"
                return candidate

    def _enqueue_some(self, only_waiting: bool) -> None:
        """Queue a few suggestions if none waits: databases are slow with long queues."""
        while not only_waiting and not self._study.has_waiting():
            some = list(islice(self._suggestions, QUEUED))
            if not some:
                return
            self._study.enqueue(some)

    def _is_uncertain(self) -> bool:
        """Whether a running trial may belong to a dead process, which shows within seconds."""
        if self._stop.is_set() or time.monotonic() > self._end + 2 * UNOWNED_S:
            return False
        return self._study.has_unowned()

    def _reason_to_stop(
        self, rows: list[TrialRow], most: int, has_patience: bool, only_waiting: bool
    ) -> str | None:
        taken = _taken(rows)
        waiting = [r for r in rows if r.state == "waiting"]
        if self._stop.is_set():
            return "stopped"
        if time.monotonic() >= self._end:
            return f"the budget of {self._budget_s:.0f} s is spent"
        if len(taken) >= most:
            return COUNTED
        if len(taken) >= self._study.space.size:
            return "every setting of the space was tried"
        if only_waiting and not waiting:
            return "nothing waits"
        if has_patience and not waiting and _is_stale(taken, self._study.objective):
            return f"none of the last {PATIENCE} candidates improved on earlier ones"
        return None


def _taken(rows: list[TrialRow]) -> list[TrialRow]:
    return [row for row in rows if row.state in ("done", "running") and row.repeat_of is None]


def best_row(rows: list[TrialRow], objective: str) -> TrialRow | None:
    """The best trial; of those as good, the one with the fewest settings."""
    scored = [(score, row) for row in rows if (score := _score(row, objective)) is not None]
    if not scored:
        return None
    least = min(score for score, _ in scored)
    close = [(score, row) for score, row in scored if score <= least * (1 + BETTER)]
    return min(close, key=lambda pair: (len(pair[1].settings), pair[0], pair[1].number))[1]


def _score(row: TrialRow, objective: str) -> float | None:
    if row.outcome is None or row.state != "done" or row.repeat_of is not None:
        return None
    return row.outcome.score(objective)


def _is_stale(taken: list[TrialRow], objective: str) -> bool:
    scores = [s for row in taken if (s := _score(row, objective)) is not None]
    if len(scores) <= PATIENCE:
        return False
    return min(scores[-PATIENCE:]) > min(scores[:-PATIENCE]) * (1 - BETTER)


def _without(settings: Mapping[str, str], names: list[str]) -> dict[str, str]:
    return {name: value for name, value in settings.items() if name not in names}


def _is_unneeded(rows: list[TrialRow], best: TrialRow, name: str, objective: str) -> bool:
    """Whether the best is as good without this setting."""
    wanted = _without(best.settings, [name])
    reference = _score(best, objective)
    for row in rows:
        score = _score(row, objective)
        if score is not None and reference is not None and dict(row.settings) == wanted:
            return score <= reference * (1 + BETTER)
    return False
