"""What the phases of a run share: the folder, what was asked for, and what is told of it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from slipstream.errors import SlipstreamError
from slipstream.experiment.receipt import Receipt, with_overlap, wrong_notes
from slipstream.outputs.html.receipt import receipt_page
from slipstream.outputs.terminal.receipt import receipt_lines
from slipstream.run.agent.request import PROFILE, Request
from slipstream.run.rank import Rank
from slipstream.run.run_dir import STATUS, RunDir, read_json
from slipstream.run.settings import Settings
from slipstream.writing import atomic_write

SIGNALLED = 128
"""what a shell adds to the number of the signal that ended a command"""
UNDER_WAY = ("warming up", "capturing", "preparing", "comparing", "checking")
"""what an agent says of itself before the end; its last word where a job was killed"""

Say = Callable[[str, str], None]
"""tells of a phase: its name, and what came of it; an empty name is a warning"""


@dataclass(frozen=True)
class RunResult:
    """How a run ended: as the job did."""

    code: int
    receipt: Receipt | None


class Context:
    """One run on one rank."""

    def __init__(self, settings: Settings, say: Say) -> None:
        self.settings = settings
        self.rank = Rank.here(settings.rank, os.environ)
        self.run_dir = RunDir(settings.out, self.rank.index)
        self.notes: list[str] = []
        self.found: dict[str, Any] = {}
        """what each phase found, for the receipt"""
        self._say = say

    def say(self, phase: str, text: str) -> None:
        """One rank speaks for all; warnings are each rank's own."""
        if self.rank.is_first or not phase:
            self._say(phase, text)

    def warn(self, text: str) -> None:
        self.notes.append(text)
        self.say("", text)

    def all_ranks(self, look: Callable[[RunDir], bool]) -> bool:
        return all(look(self.run_dir.of(rank)) for rank in range(self.rank.count))

    def write_request(self, mode: str, phase: Path, **more: Any) -> Path:
        """Request for the agent, written down in the phase's folder."""
        settings = self.settings
        request = Request(
            mode, str(phase), settings.start, settings.steps, settings.rounds, settings.policy,
            launcher=os.getpid() if mode == PROFILE else 0, profiler=settings.profiler,
        )  # fmt: skip
        return replace(request, **more).write(phase / "request.json")

    def why_not(self, phase: Path, code: int) -> str:
        """Why a job ended without a comparison, as far as its agent said."""
        problem = phase / "request.json.problem"
        if problem.exists():
            return f"Slipstream did not start inside the job: {problem.read_text().strip()}"
        status = read_json(phase / STATUS)
        why = "the job ended without calling a jitted function"
        if code > SIGNALLED and status is None:
            name = signal_name(code)
            return f"the job was ended by {name} before it called a jitted function"
        if status is not None:
            state = status.get("state")
            ended = f"the job ended while it was {state}" if state in UNDER_WAY else ""
            why = str(status.get("why") or ended or "the job ended before the capture")
        if code > SIGNALLED:
            return f"{why} (the job was ended by {signal_name(code)})"
        return why if code == 0 else f"{why} (the job's exit code: {code})"

    def finish(self, receipt: Receipt) -> Receipt:
        """The receipt with what only the launcher knows, told and in its place."""
        done = replace(
            self._with_overlap(receipt),
            repeat={**receipt.repeat, **self.settings.repeat()},
            phases=self.found,
            notes=(*receipt.notes, *self.notes),
        )
        for phase, text in receipt_lines(done.to_json()):
            self.say(phase, text)
            if phase == "compile":
                self.tell_wrong(done)
        try:
            if self.rank.is_first:
                write_receipt(done, self.run_dir.folder)
        except (OSError, SlipstreamError) as problem:
            self.warn(f"the receipt was not written: {problem}")
        return done

    def tell_wrong(self, receipt: Receipt) -> None:
        """What of the programs is wrong: all ranks compiled the same, so one says it."""
        for text in wrong_notes(receipt.arms) if self.rank.is_first else ():
            self.say("", text)

    def _with_overlap(self, receipt: Receipt) -> Receipt:
        try:
            return with_overlap(receipt)
        except Exception as problem:  # a receipt without overlap is better than none
            self.warn(f"the profiles were not read: {type(problem).__name__}: {problem}")
            return receipt


def signal_name(code: int) -> str:
    """`SIGTERM` of an exit code as a shell has it."""
    try:
        return signal.Signals(code - SIGNALLED).name
    except ValueError:
        return f"signal {code - SIGNALLED}"


def write_receipt(receipt: Receipt, folder: Path) -> None:
    """The receipt, and the page that shows it."""
    receipt.write(folder)
    with atomic_write(folder / "receipt.html") as temporary:
        temporary.write_text(receipt_page(receipt.to_json()), encoding="utf-8")
