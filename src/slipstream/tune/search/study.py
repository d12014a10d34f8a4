"""Candidates and their outcomes, in a database that outlives every process.

    ask ─► a candidate: RUNNING, owned by this process ─► tell ─► COMPLETE, or PRUNED if it failed

Optuna keeps the trials and proposes new ones (TPE). A trial whose process died is detected by its
owner (on this host) or by missed heartbeats (on other hosts); it is marked FAIL and tried again,
once. Settings that were tried before reuse the first outcome.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from slipstream.tune.outcome import Outcome
from slipstream.tune.search.seeds import SEARCH, Suggestion
from slipstream.tune.search.storage import GRACE_S, HEARTBEAT_S, import_optuna, open_storage
from slipstream.tune.search.trial_owner import TrialOwners, owner
from slipstream.tune.space.knob import Knob

SETTLE_S = 5.0
"""how long a trial waits for an earlier one to say what it tries; its process may have died"""
MOST_REPEATS = 40
"""stop after this many consecutive proposals that were tried before"""
FEWEST_BEFORE = 4
"""measured candidates needed before the median pruner may give one up"""
Key = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Candidate:
    """One trial for this process to evaluate."""

    number: int
    settings: Mapping[str, str]
    origin: str


@dataclass(frozen=True)
class TrialRow:
    """One trial, as the database keeps it."""

    number: int
    settings: Mapping[str, str]
    origin: str
    state: str
    """`done`, `running`, `waiting` or `interrupted`"""
    outcome: Outcome | None
    repeat_of: int | None
    seconds: float
    """from ask to tell; 0 for a trial that was not told, or by a Slipstream that kept no times"""


class SearchSpace(Protocol):
    """What a study searches."""

    @property
    def knobs(self) -> Sequence[Knob]: ...

    @property
    def left_out(self) -> Mapping[str, str]:
        """Knobs that were left out, and why."""

    @property
    def size(self) -> int:
        """The number of possible settings."""

    def without_defaults(self, chosen: Mapping[str, str]) -> dict[str, str]:
        """The settings that a value for each knob stands for."""


class Study:
    """One study; any number of threads and processes may use it at once."""

    def __init__(
        self,
        url: str,
        name: str,
        space: SearchSpace,
        objective: str,
        seed: int = 0,
        grace_s: int = GRACE_S,
    ) -> None:
        optuna = import_optuna()
        self.space = space
        self.objective = objective
        self._optuna = optuna
        self._lock = threading.RLock()
        self._owned: dict[int, Any] = {}
        self._asked_at: dict[int, float] = {}
        """by number of the trial, on a clock that can't be set"""
        self._finished: dict[int, TrialRow] = {}
        """rows of finished trials, by number"""
        self._owners = TrialOwners()
        self._heartbeat_thread: threading.Thread | None = None
        self._is_closed = threading.Event()
        storage = open_storage(optuna, url, grace_s)
        self._study = optuna.create_study(
            storage=storage, study_name=name, load_if_exists=True, direction="minimize"
        )
        self._storage = storage
        self._study.sampler = optuna.samplers.TPESampler(
            seed=self._sampler_seed(seed), multivariate=True, constant_liar=True, n_startup_trials=8
        )
        self._study.pruner = optuna.pruners.MedianPruner(FEWEST_BEFORE, n_min_trials=FEWEST_BEFORE)

    def _sampler_seed(self, seed: int) -> int:
        """Reproducible for one worker; different for workers that run at the same time."""
        offset = os.getpid() if self._trials(self._states.RUNNING) else 0
        return (seed + len(self._study.get_trials(deepcopy=False)) + offset) % 2**31

    def close(self) -> None:
        self._is_closed.set()
        if self._heartbeat_thread is not None:
            self._heartbeat_thread.join()
        self._storage.remove_session()
        self._storage.engine.dispose()

    # The queue.

    def enqueue(self, seeds: Sequence[Suggestion], most: int | None = None) -> None:
        """Queue settings to try next, in this order, without those that the study already has."""
        with self._lock:
            known = {_key(row.settings) for row in self.rows() if row.settings is not None}
            limit = len(known) + (len(seeds) if most is None else most)
            for one in seeds:
                if _key(one.settings) not in known and len(known) < limit:
                    known.add(_key(one.settings))
                    facts = {"origin": one.origin, "settings": dict(one.settings)}
                    self._study.enqueue_trial(self._encoded(one.settings), user_attrs=facts)

    def ask(self) -> Candidate | None:
        """A candidate that was not tried yet; None if the search proposes nothing new."""
        with self._lock:
            self.requeue_dead()
            for _ in range(MOST_REPEATS):
                trial = self._study.ask()
                trial.set_user_attr("owner", owner())
                settings = self._suggested(trial)
                trial.set_user_attr("settings", settings)
                if not self._is_repeat(trial, settings):
                    self._owned[trial._trial_id] = trial
                    self._asked_at[trial.number] = time.monotonic()
                    self._send_heartbeat(trial._trial_id)
                    self._start_heartbeats()
                    origin = trial.user_attrs.get("origin", SEARCH)
                    return Candidate(trial.number, settings, origin)
            return None

    def tell(self, candidate: Candidate, outcome: Outcome) -> None:
        """Record a candidate's outcome, unless the trial was meanwhile given to another process."""
        with self._lock:
            trial_id = next(i for i, t in self._owned.items() if t.number == candidate.number)
            trial = self._owned.pop(trial_id)
            seconds = time.monotonic() - self._asked_at.pop(trial.number)
            finished = self._optuna.exceptions.UpdateFinishedTrialError
            # Another process may have declared us dead; then the trial runs again elsewhere.
            with suppress(finished):
                trial.set_user_attr("outcome", outcome.to_json())
                trial.set_user_attr("seconds", seconds)
                score = outcome.score(self.objective)
                if score is None:
                    self._study.tell(trial, state=self._states.PRUNED)
                else:
                    self._study.tell(trial, score)

    def should_prune(self, candidate: Candidate, change: float, rounds: int) -> bool:
        """Whether Optuna's median pruner gives it up, after this many rounds."""
        with self._lock:
            trial = next(t for t in self._owned.values() if t.number == candidate.number)
            trial.report(change, rounds)
            return bool(trial.should_prune())

    def release(self, candidate: Candidate) -> None:
        """Give a candidate back, for any process to try."""
        with self._lock:
            trial_id = next(i for i, t in self._owned.items() if t.number == candidate.number)
            self._fail(trial_id)
            del self._owned[trial_id], self._asked_at[candidate.number]
            self._retry_failed()

    def requeue_dead(self) -> None:
        """Find trials whose process died, and queue them again."""
        with self._lock:
            for trial in self._trials(self._states.RUNNING):
                if trial._trial_id not in self._owned and self._owners.is_dead(trial):
                    self._fail(trial._trial_id)
            self._optuna.storages.fail_stale_trials(self._study)
            self._retry_failed()

    def _retry_failed(self) -> None:
        trials = self._study.get_trials(deepcopy=False)
        retried = {trial.user_attrs.get("retry_of") for trial in trials}
        for trial in trials:
            if trial.state != self._states.FAIL or "repeat_of" in trial.user_attrs:
                continue
            params = trial.params or trial.system_attrs.get("fixed_params")
            if params and trial.number not in retried:
                facts = {"origin": trial.user_attrs.get("origin", SEARCH)}
                facts |= {"retry_of": trial.number}
                if "settings" in trial.user_attrs:
                    facts["settings"] = trial.user_attrs["settings"]
                self._study.enqueue_trial(dict(params), user_attrs=facts)

    def _fail(self, trial_id: int) -> None:
        # Another process may have been faster.
        with suppress(self._optuna.exceptions.UpdateFinishedTrialError):
            self._storage.set_trial_state_values(trial_id, self._states.FAIL)

    def _is_repeat(self, trial: Any, settings: Mapping[str, str]) -> bool:
        """Whether these settings are known or being tried; then finish the trial here."""
        key = _key(settings)
        for row in self._rows_once_settled(trial.number):
            if row.number >= trial.number and row.state != "done":
                continue
            is_taken = row.state in ("done", "running") and row.number != trial.number
            if is_taken and row.repeat_of is None and _key(row.settings) == key:
                trial.set_user_attr("repeat_of", row.number)
                score = row.outcome.score(self.objective) if row.outcome else None
                if score is not None:
                    self._study.tell(trial, score)
                else:
                    self._study.tell(trial, state=self._states.FAIL)
                return True
        return False

    def _rows_once_settled(self, number: int) -> list[TrialRow]:
        """All rows, once every earlier trial that runs has said what it tries.

        Of two processes that propose the same settings at the same moment, the later trial gives
        way; it can't while the earlier one has not written its settings yet.
        """
        end = time.monotonic() + SETTLE_S
        while any(
            trial.number < number and "settings" not in trial.user_attrs
            for trial in self._trials(self._states.RUNNING)
        ):
            if time.monotonic() > end:
                break
            time.sleep(0.02)
        return self.rows()

    # Results.

    def rows(self) -> list[TrialRow]:
        """Every trial, in the order in which they were asked for."""
        return [self._known_row(trial) for trial in self._study.get_trials(deepcopy=False)]

    def _known_row(self, trial: Any) -> TrialRow:
        """The row of a trial; those of finished ones never change, and are read once."""
        if trial.number not in self._finished:
            row = self._row(trial)
            if not trial.state.is_finished():
                return row
            self._finished[trial.number] = row
        return self._finished[trial.number]

    def programs(self) -> dict[str, Outcome]:
        """The outcome of each simulated program, by hash."""
        outcomes = [row.outcome for row in self.rows() if row.outcome is not None]
        return {outcome.program: outcome for outcome in outcomes if outcome.is_ok}

    def note(self, name: str, text: str) -> None:
        """Keep a text with the study."""
        self._study.set_user_attr(name, text)

    def notes(self) -> dict[str, str]:
        found: dict[str, str] = self._study.user_attrs
        return found

    def has_waiting(self) -> bool:
        """Whether a trial is queued."""
        return bool(self._trials(self._states.WAITING))

    def has_unowned(self) -> bool:
        """Whether a running trial has no owner."""
        running = self._trials(self._states.RUNNING)
        return any("owner" not in trial.user_attrs for trial in running)

    def importances(self) -> dict[str, float]:
        """Each knob's share of the objective's variation, by PED-ANOVA; empty if unknown."""
        evaluator = self._optuna.importance.PedAnovaImportanceEvaluator()
        done = [t for t in self._trials(self._states.COMPLETE) if t.params]
        if len({trial.value for trial in done}) < 3:
            return {}
        found: dict[str, float] = self._optuna.importance.get_param_importances(
            self._study, evaluator=evaluator
        )
        return found

    def _row(self, trial: Any) -> TrialRow:
        states = self._states
        names = {
            states.RUNNING: "running", states.WAITING: "waiting", states.FAIL: "interrupted",
        }  # fmt: skip
        outcome = trial.user_attrs.get("outcome")
        return TrialRow(
            number=trial.number,
            settings=trial.user_attrs.get("settings") or {},
            origin=trial.user_attrs.get("origin", SEARCH),
            state=names.get(trial.state, "done"),
            outcome=Outcome.from_json(outcome) if outcome else None,
            repeat_of=trial.user_attrs.get("repeat_of"),
            seconds=float(trial.user_attrs.get("seconds", 0.0)),
        )

    def _trials(self, state: Any) -> list[Any]:
        found: list[Any] = self._study.get_trials(deepcopy=False, states=(state,))
        return found

    @property
    def _states(self) -> Any:
        return self._optuna.trial.TrialState

    # Settings as Optuna's parameters.

    def _suggested(self, trial: Any) -> dict[str, str]:
        chosen = {}
        for knob in self.space.knobs:
            if knob.is_ordered:
                position = trial.suggest_int(knob.name, 0, len(knob.values) - 1)
                chosen[knob.name] = knob.ordered_values[position]
            else:
                chosen[knob.name] = trial.suggest_categorical(knob.name, list(knob.values))
        return self.space.without_defaults(chosen)

    def _encoded(self, settings: Mapping[str, str]) -> dict[str, Any]:
        return {k.name: _encode(k, settings.get(k.name, k.default)) for k in self.space.knobs}

    # Heartbeats.

    def _start_heartbeats(self) -> None:
        if self._heartbeat_thread is None:
            self._heartbeat_thread = threading.Thread(target=self._send_heartbeats, daemon=True)
            self._heartbeat_thread.start()

    def _send_heartbeats(self) -> None:
        while not self._is_closed.wait(HEARTBEAT_S):
            with self._lock:
                for trial_id in self._owned:
                    self._send_heartbeat(trial_id)

    def _send_heartbeat(self, trial_id: int) -> None:
        self._storage.record_heartbeat(trial_id)


def _encode(knob: Knob, value: str) -> Any:
    return knob.ordered_values.index(value) if knob.is_ordered else value


def _key(settings: Mapping[str, str]) -> Key:
    return tuple(sorted(settings.items()))
