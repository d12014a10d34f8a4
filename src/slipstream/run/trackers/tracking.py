"""Which trackers get the receipt, and when: in a thread of the job, which never waits for it.

    the job's thread      start: MLflow's active run is known to its own thread only
    the receipt's thread  find_writer, notes: the receipt says where it is logged; then ready
    a thread of its own   waits for the launcher's receipt, and logs it; then the same with the
                          launcher's report, if something was recorded

What goes wrong is written to tracked.json, which the launcher reports when the job has ended.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from slipstream.errors import BadInput
from slipstream.experiment.receipt import COMPARISON
from slipstream.jaxhooks.shutdown import SHUTDOWN, at_shutdown
from slipstream.masking import mask_text
from slipstream.run.run_dir import PAGE, RECEIPT, write_json
from slipstream.run.trackers import report
from slipstream.run.trackers.mlflow import run_of_this_thread
from slipstream.run.trackers.tensorboard import TensorBoard, writer_of_this_process
from slipstream.run.trackers.tracked import Tracked, Tracker, tracked_of
from slipstream.run.trackers.wandb import run_of_this_process

log = logging.getLogger("slipstream")

AUTO, NONE = "auto", "none"
TENSORBOARD, WANDB, MLFLOW = "tensorboard", "wandb", "mlflow"
NAMES = (TENSORBOARD, WANDB, MLFLOW)
TRACKED = "tracked.json"
RECEIPT_WAIT_S = 60.0
"""for the launcher's receipt, which has what the profiles show; then ours has to do"""
LAST_WAIT_S = 3.0
"""the same once the job is ending"""
REPORT_WAIT_S = 600.0
"""for the launcher's report, while the job goes on"""
END_WAIT_S = 10.0
"""for which the end of a job waits for its trackers, counted from when they got the receipt: not
for a server that has not answered for longer"""
_POLL_S = 0.1
_INACTIVE = {
    WANDB: "the job's process has no active run of Weights & Biases (wandb.init)",
    MLFLOW: "the thread that trains has no active run of MLflow (mlflow.start_run)",
    TENSORBOARD: "the job's process has no writer of event files; to name the folder: "
    "--track tensorboard=LOGDIR",
}


def parse_track(texts: Sequence[str]) -> tuple[str, ...]:
    """`--track` as typed: names, `tensorboard=DIR`, `auto` or `none`; BadInput for others."""
    found = tuple(word.strip() for text in texts for word in text.split(",") if word.strip())
    for word in found:
        name, equals, folder = word.partition("=")
        is_known = name in (AUTO, NONE, *NAMES)
        if not is_known or (equals and not (name == TENSORBOARD and folder)):
            raise BadInput(
                f"--track is {word!r}; expected {', '.join(NAMES)}, tensorboard=LOGDIR, auto or "
                "none"
            )
    if len(found) > 1 and {AUTO, NONE} & set(found):
        raise BadInput(f"--track {' and --track '.join(found)} can't be combined; give one of them")
    return found or (AUTO,)


class Tracking:
    """The trackers of one job."""

    def __init__(self, asked: Sequence[str], folder: Path, run_folder: Path | None) -> None:
        self.trackers: list[Tracker] = []
        self._asked = {name: value for name, _, value in (one.partition("=") for one in asked)}
        self._folder, self._run_folder = folder, run_folder
        self._problems: list[str] = []
        self._done: list[str] = []
        self._has_looked = False
        self._ready = threading.Event()
        self._deadline: float | None = None
        """until when the end of the job waits; None before anything is logged"""
        self._after = 0.0

    def start(self) -> None:
        """In the thread that trains: find active runs, and begin to wait for the receipt.

        Not later, since a process that has begun to end starts no threads.
        """
        if not self._asked or NONE in self._asked:
            return
        # Anew: a job with several functions may settle more than once.
        self.trackers, self._problems, self._done = [], [], []
        self._has_looked, self._deadline = False, None
        self._ready = threading.Event()
        self._look(WANDB, run_of_this_process)
        self._look(MLFLOW, run_of_this_thread)
        thread = threading.Thread(
            target=self._log, args=(self._ready,), name="slipstream-trackers", daemon=True
        )
        # Before libraries close their runs, which they do when Python ends.
        at_shutdown(lambda: self._finish(thread))
        try:
            thread.start()
        except RuntimeError:
            log.warning("slipstream: not tracked: the job is ending")

    def find_writer(self) -> None:
        """Look for TensorBoard's writers among the objects of the process, which takes a while."""
        self._has_looked = True
        folder = self._asked.get(TENSORBOARD)
        self._look(TENSORBOARD, lambda: TensorBoard(folder) if folder else writer_of_this_process())

    def _look(self, name: str, find: Callable[[], Tracker | None]) -> None:
        if name not in self._asked and AUTO not in self._asked:
            return
        try:
            found = find()
        except Exception as problem:  # of a library of the job's: the job must go on
            self._failed(name, problem)
            return
        if found is not None:
            self.trackers.append(found)
        elif name in self._asked:
            self._problems.append(_INACTIVE[name])

    @property
    def notes(self) -> tuple[str, ...]:
        """For the receipt: where it is logged."""
        found = [f"also logged to {one.text}; to leave that: --track none" for one in self.trackers]
        return (*found, *(f"not tracked: {problem}" for problem in self._problems))

    def ready(self, after: float) -> None:
        """The agent's receipt is written; the launcher's is one that is not older than `after`."""
        self._after = after
        self._ready.set()

    def _finish(self, thread: threading.Thread) -> None:
        SHUTDOWN.set()
        latest = time.monotonic() + END_WAIT_S
        while thread.is_alive() and time.monotonic() < (self._deadline or latest):
            thread.join(_POLL_S)
        if thread.is_alive():
            late = [one.text for one in self.trackers if one.text not in self._done]
            no_answer = f"{', '.join(late)}: no answer until the job ended"
            self._problems.append(no_answer if late else self._late_report)
            self._write_facts()

    def _log(self, ready: threading.Event) -> None:
        ready.wait(RECEIPT_WAIT_S)
        if not self._has_looked:
            self.find_writer()
        if not self.trackers:
            return self._write_facts()
        try:
            tracked = self._receipt(self._after)
        except Exception as problem:  # nothing may end a thread of the job with a traceback
            self._failed("receipt", problem)
            return self._write_facts()
        self._deadline = time.monotonic() + END_WAIT_S
        for tracker in self.trackers:
            try:
                tracker.log(tracked)
                self._done.append(tracker.text)
            except Exception as problem:  # a server that is away, a full disk: the job goes on
                self._failed(tracker.text, problem)
        self._write_facts()
        if self._done and tracked.profiles and self._run_folder is not None:
            self._log_report(tracked)
            self._write_facts()

    def _log_report(self, tracked: Tracked) -> None:
        """Let the launcher make a report, and log it where the receipt is."""
        try:
            report.ask(self._folder, tracked.profiles)
            page = self._awaited_report()
        except OSError as problem:
            return self._failed("report", problem)
        if page is None:
            return self._problems.append(self._late_report)
        self._deadline = time.monotonic() + END_WAIT_S
        for tracker in self.trackers:
            try:
                if tracker.text in self._done:
                    tracker.log_report(page)
            except Exception as problem:  # as above
                self._failed(f"report to {tracker.text}", problem)

    @property
    def _late_report(self) -> str:
        made = f"slipstream report {self._run_folder}"
        return f"the report, which was not ready when the job ended; to make it: {made}"

    def _awaited_report(self) -> Path | None:
        deadline = time.monotonic() + REPORT_WAIT_S
        while (page := report.found(self._folder)) is None and time.monotonic() < deadline:
            if SHUTDOWN.wait(_POLL_S):
                deadline = min(deadline, time.monotonic() + LAST_WAIT_S)
                time.sleep(_POLL_S)
        return page

    def _receipt(self, after: float) -> Tracked:
        """The launcher's receipt and its page; the agent's, if the launcher is gone or slow."""
        deadline = time.monotonic() + RECEIPT_WAIT_S
        if self._run_folder is not None:
            page, receipt = self._run_folder / PAGE, self._run_folder / RECEIPT
            while time.monotonic() < deadline:
                if _is_new(page, after) and _is_new(receipt, after):
                    return tracked_of(receipt, page)
                if SHUTDOWN.wait(_POLL_S):
                    deadline = min(deadline, time.monotonic() + LAST_WAIT_S)
                    time.sleep(_POLL_S)
        return tracked_of(self._folder / COMPARISON)

    def _failed(self, what: str, problem: Exception) -> None:
        text = mask_text(f"{what}: {type(problem).__name__}: {problem}")
        log.warning("slipstream: not tracked: %s", text)
        self._problems.append(text)

    def _write_facts(self) -> None:
        if not self._done and not self._problems:
            return
        facts: dict[str, Any] = {"logged": self._done, "problems": self._problems}
        try:
            write_json(self._folder / TRACKED, facts)
        except OSError:
            log.warning("slipstream: %s was not written", TRACKED)


def _is_new(file: Path, after: float) -> bool:
    try:
        return file.stat().st_mtime >= after
    except OSError:
        return False
