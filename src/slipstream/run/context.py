"""What the phases of a run share: settings, folder, rank, and what was found and reported."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from slipstream.errors import SlipstreamError
from slipstream.experiment.controller import State
from slipstream.experiment.receipt import Receipt, with_overlap, wrong_notes
from slipstream.outputs.html.receipt import receipt_page
from slipstream.outputs.terminal.receipt import receipt_lines
from slipstream.run.agent.request import JAX_IMPORTED, LOADED, PROBLEM, PROFILE, Request, marked
from slipstream.run.job_command import obstacle, suspect
from slipstream.run.rank import Rank, more_processes_note, rank_notes
from slipstream.run.run_dir import PAGE, REQUEST, STATUS, RunDir, read_json
from slipstream.run.settings import Settings
from slipstream.writing import atomic_write

SIGNALLED = 128
"""what a shell adds to the number of the signal that ended a command"""
INSTALL = "python -m pip install slipstream"
_UNSEEN = (
    "it ran no Python, or its Python ignored PYTHONPATH (as with python -I, env -i, sudo, or in a "
    f"container); if so, type there: {INSTALL}, and put slipstream run -- before python"
)
"""why Slipstream may never have been loaded, where the command shows no reason"""
UNDER_WAY = tuple(state.value for state in State if state is not State.SETTLED)
"""states of an agent that is not finished; the last one it wrote if the job was killed"""

Say = Callable[[str, str], None]
"""reports (phase, text); an empty phase is a warning, one that ends in `…` has just begun"""


@dataclass(frozen=True)
class RunResult:
    """How a run ended: with the job's exit code."""

    code: int
    receipt: Receipt | None


class Context:
    """One run on one rank."""

    def __init__(self, settings: Settings, say: Say) -> None:
        self.settings = settings
        self.rank = Rank.here(settings.rank, os.environ)
        self.run_dir = RunDir(settings.out, self.rank.index)
        self.notes: list[str] = []
        self.phase_facts: dict[str, Any] = {}
        """what each phase found, for the receipt"""
        self._say = say

    def say(self, phase: str, text: str) -> None:
        """The first rank reports phases for all; every rank reports its own warnings."""
        if self.rank.is_first or not phase:
            self._say(phase, text)

    def warn(self, text: str) -> None:
        self.notes.append(text)
        self.say("", text)

    def rank_notes(self) -> tuple[str, ...]:
        """What is doubtful about the rank, unless it was typed."""
        return rank_notes(os.environ) if self.settings.rank is None else ()

    def all_ranks(self, holds: Callable[[RunDir], bool]) -> bool:
        return all(holds(self.run_dir.of(index)) for index in range(self.rank.count))

    def write_request(self, mode: str, phase: Path, **more: Any) -> Path:
        """Write a request for the agent into the phase's folder."""
        settings = self.settings
        request = Request(
            mode,
            str(phase),
            start=settings.start,
            steps=settings.steps,
            rounds=settings.rounds,
            policy=settings.policy,
            launcher=os.getpid() if mode == PROFILE else 0,
            profiler=settings.profiler,
            functions=settings.functions,
        )
        return replace(request, **more).write(phase / REQUEST)

    def why_not(self, phase: Path, code: int) -> str:
        """Why a job ended without a comparison, as far as its agent reported."""
        problem = agent_problem(phase)
        if problem is not None:
            return problem
        status = read_json(phase / STATUS)
        command = self.settings.command
        if status is None:
            if code > SIGNALLED and obstacle(command, os.environ) is None:
                name = signal_name(code)
                return f"{name} ended the job before it called a jitted function"
            why = how_far(phase, command)
        else:
            state = status.get("state")
            ended = f"the job ended while it was {state}" if state in UNDER_WAY else ""
            why = str(status.get("why") or ended or "the job ended before the capture")
        if code > SIGNALLED:
            return f"{why} ({signal_name(code)} ended the job)"
        return why if code == 0 else f"{why} (the job's exit code: {code})"

    def finish(self, receipt: Receipt) -> Receipt:
        """Add what only the launcher knows to the receipt, report it, and write it."""
        note = more_processes_note(self.rank, int(receipt.ranks.get("count", 1)))
        if note is not None and note not in self.notes:
            self.warn(note)
        done = replace(
            self._with_overlap(receipt),
            repeat={**receipt.repeat, **self.settings.repeat()},
            phases=self.phase_facts,
            notes=(*receipt.notes, *self.notes),
        )
        for phase, text in receipt_lines(done.to_json()):
            self.say(phase, text)
            if phase == "compile":
                self.report_wrong_programs(done)
        try:
            if self.rank.is_first:
                write_receipt(done, self.run_dir.folder)
                self._say_next(done)
        except (OSError, SlipstreamError) as problem:
            self.warn(f"the receipt was not written: {problem}")
        return done

    def _say_next(self, receipt: Receipt) -> None:
        """Name the page, and what can be done with the folder."""
        folder = shortest(self.run_dir.folder)
        self.say("receipt", str(folder / PAGE))
        found = [f"slipstream diagnose {folder}  shows what slows the step"]
        if receipt.basis == "measured" and receipt.chosen != "original":
            found.insert(0, f"the same command again runs {receipt.chosen} from the start")
        if any(self.run_dir.profile.rglob("*.xplane.pb")):
            self.say("next", "; ".join(found))

    def report_wrong_programs(self, receipt: Receipt) -> None:
        """Warn of programs that XLA miscompiled; one rank does, since all compiled the same."""
        for text in wrong_notes(receipt.arms) if self.rank.is_first else ():
            self.say("", text)

    def _with_overlap(self, receipt: Receipt) -> Receipt:
        try:
            return with_overlap(receipt)
        except Exception as problem:  # a receipt without overlap is better than none
            self.warn(f"the profiles were not read: {type(problem).__name__}: {problem}")
            return receipt


def how_far(phase: Path, command: Sequence[str]) -> str:
    """How far Slipstream got inside a job that ended before its agent reported anything."""
    request = phase / REQUEST
    if marked(request, JAX_IMPORTED).exists():
        return (
            "the job imported jax, but ended before it called a jitted function often enough to "
            "be measured"
        )
    if marked(request, LOADED).exists():
        return "the job never imported jax; Slipstream was loaded inside it, and had nothing to do"
    reason = obstacle(command, os.environ) or suspect(command) or _UNSEEN
    return f"Slipstream was never loaded inside the job: {reason}"


def agent_problem(phase: Path) -> str | None:
    """Why the agent did not start; None if it did, or was never loaded."""
    file = marked(phase / REQUEST, PROBLEM)
    if not file.exists():
        return None
    return f"Slipstream did not start inside the job: {file.read_text(errors='replace').strip()}"


def signal_name(code: int) -> str:
    """`SIGTERM` for a shell's exit code 143."""
    try:
        return signal.Signals(code - SIGNALLED).name
    except ValueError:
        return f"signal {code - SIGNALLED}"


def shortest(folder: Path) -> Path:
    """The folder as seen from the working directory, if it is below it."""
    here = Path.cwd()
    return folder.relative_to(here) if folder.is_relative_to(here) else folder


def write_receipt(receipt: Receipt, folder: Path) -> None:
    """Write the receipt, and the page that shows it; never one beside an older other."""
    (folder / PAGE).unlink(missing_ok=True)
    receipt.write(folder)
    with atomic_write(folder / PAGE, is_private=True) as temporary:
        temporary.write_text(receipt_page(receipt.to_json()), encoding="utf-8")
