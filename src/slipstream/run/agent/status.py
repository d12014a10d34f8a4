"""What the agent writes into its phase's folder: its state, its results and its log.

Failures to write are logged to agent.log; the job goes on.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from slipstream.errors import SlipstreamError
from slipstream.experiment.compare_outputs import write_results
from slipstream.experiment.controller import Controller
from slipstream.experiment.receipt import COMPARISON, Receipt, combined_receipt, receipt_of
from slipstream.jaxhooks.compiled_program import CompiledProgram
from slipstream.masking import mask_text
from slipstream.run.agent.program_dump import content_of, save_program
from slipstream.run.agent.recorded_phases import save_phases
from slipstream.run.agent.recorder import job_facts
from slipstream.run.agent.request import APPLY, COMPARE, Request
from slipstream.run.run_dir import FAILED, REQUEST, STATUS, mark_done, sha256, write_json

log = logging.getLogger("slipstream")

OURS = (OSError, SlipstreamError, RuntimeError, ValueError)
"""what writing a result may raise: the disk, our own files, and XLA"""


@dataclass(frozen=True)
class MeasuredFunction:
    """A function of the job, and its part in it."""

    controller: Controller
    share: float | None
    """of the devices' time"""
    calls_per_step: float | None
    """a step is a call of the function that takes most time"""

    def facts(self, phase: Path) -> dict[str, Any]:
        """What a later run needs to apply the result; the costs relative to the phase's folder."""
        compiled, outcome = self.controller.compiled, self.controller.outcome
        return {
            "program": compiled.name,
            "content": content_of(compiled),
            "chosen": outcome.chosen,
            "costs": os.path.relpath(outcome.costs, phase) if outcome.costs else None,
            "costs_sha256": sha256(outcome.costs) if outcome.costs else None,
        }

    def receipt(self) -> Receipt:
        found = receipt_of(self.controller, reads_profiles=False)
        part = {"share": self.share, "calls_per_step": self.calls_per_step}
        return replace(found, program={**found.program, **part})


class AgentStatus:
    """The folder of one phase on one rank, as the agent writes it."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.folder = Path(request.folder)
        self.state = ""

    def say(self, state: str, why: str = "", profile_fits: bool = False) -> None:
        """Write the agent's state, for the launcher."""
        if not state or state == self.state:
            return
        self.state = state
        facts = {"state": state, "why": why, "process": os.getpid(), "profile_fits": profile_fits}
        try:
            write_json(self.folder / STATUS, facts)
        except OURS:
            log.warning("slipstream: %s (the state could not be written)", state)

    def compared(
        self,
        functions: Sequence[MeasuredFunction],
        autopgle: Mapping[str, Any],
        is_whole: bool = True,
        notes: Sequence[str] = (),
    ) -> bool:
        """Write the receipt of the comparisons; `autopgle` holds facts about AutoPGLE."""
        try:
            self._compared(functions, autopgle, is_whole, notes)
        except OURS:
            log.warning("slipstream: the receipt could not be written", exc_info=True)
            return False
        return True

    def _compared(
        self,
        functions: Sequence[MeasuredFunction],
        autopgle: Mapping[str, Any],
        is_whole: bool,
        notes: Sequence[str],
    ) -> None:
        controller = functions[0].controller
        is_reused = any(one.controller.plan.is_recorded for one in functions)
        if self.request.mode in (COMPARE, APPLY) and not is_reused:
            # The job has changed: only now is it certain that nothing known will run.
            save_phases(self.request, controller.compiled, controller.outcome)
        receipt = combined_receipt([one.receipt() for one in functions])
        program = save_program(controller.compiled, self.folder / "programs")
        files = {what: str(file) for what, file in program.items()}
        receipt = replace(receipt, files={**receipt.files, **files})
        receipt = replace(receipt, notes=(*receipt.notes, *notes))
        if autopgle:
            receipt = replace(receipt, pgle={**receipt.pgle, "auto": dict(autopgle)})
        receipt.write(self.folder, COMPARISON)
        facts = {
            "program": controller.compiled.name,
            "content": content_of(controller.compiled),
            "chosen": receipt.chosen,
            "verdict": receipt.verdict,
            "functions": [one.facts(self.folder) for one in functions],
            "reused_profile": controller.plan.is_recorded,
            "variants": [asdict(variant) for variant in controller.plan.variants],
            **job_facts(),
        }
        if is_whole:
            mark_done(self.folder, [self.folder / COMPARISON, *program.values()], facts)

    def recorded(self, facts: dict[str, Any] | None, why: str) -> None:
        """Mark the profile as done, or write why there is none."""
        try:
            if facts is None:
                write_json(self.folder / FAILED, {"why": why})
                return
            files = facts.pop("files")
            mark_done(self.folder, files, facts | self.request.conditions())
        except OURS:
            log.warning("slipstream: the profile could not be saved", exc_info=True)
            self._give_up()

    def timed(
        self,
        program: CompiledProgram,
        step_s: float,
        steps: int,
        results: Mapping[str, Any] | None = None,
    ) -> None:
        """Write the time per step, and the results of its first call if they were kept."""
        try:
            facts = {"program": program.name, "content": content_of(program), **job_facts()}
            facts["environment"] = {name: os.environ.get(name) for name in self.request.variables}
            if results is not None:
                write_results(self.folder, results)
            mark_done(self.folder, [], facts | {"step_s": step_s, "steps": steps})
        except OURS:
            log.warning("slipstream: the time could not be written", exc_info=True)
            self._give_up()

    def _give_up(self) -> None:
        # On a full disk files can't be written, but they can be removed.
        with suppress(OSError):
            (self.folder / REQUEST).unlink()

    def lowered(self, program: CompiledProgram, is_sure: bool) -> None:
        """Save the hot program as JAX lowered it, or the best candidate so far."""
        try:
            files = save_program(program, self.folder / "programs")
            facts = {
                "program": program.name,
                "content": content_of(program),
                "stablehlo": str(files["stablehlo"]),
                "is_sure": is_sure,
                "order": program.device_ids,
                "flags": program.flags_in_effect,
                **job_facts(),
            }
            if is_sure:
                _remove_others(files.values())
                mark_done(self.folder, files.values(), facts)
            else:
                write_json(self.folder / "candidate.json", facts)
        except OURS:
            log.warning("slipstream: the program could not be saved", exc_info=True)


def _remove_others(files: Iterable[Path]) -> None:
    """Remove the candidates that were not chosen."""
    kept = set(files)
    for file in next(iter(kept)).parent.iterdir():
        if file not in kept:
            file.unlink()


def log_to(path: Path) -> None:
    """Send Slipstream's log in this process there only, never to the job's own output."""
    handler = _QuietHandler(path)
    handler.setFormatter(_MaskingFormatter("%(asctime)s %(message)s"))
    log = logging.getLogger("slipstream")
    log.addHandler(handler)
    log.propagate = False


class _MaskingFormatter(logging.Formatter):
    """Errors of the job's libraries may quote what they were given."""

    def format(self, record: logging.LogRecord) -> str:
        return mask_text(super().format(record))


class _QuietHandler(logging.FileHandler):
    """Stays silent if it can't write: the disk may be full."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, delay=True)

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        pass
