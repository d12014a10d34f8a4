"""The job itself, with the agent inside it: it records, compiles and compares, as far as needed."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from slipstream.errors import BadInput, SlipstreamError
from slipstream.experiment.controller import State
from slipstream.experiment.receipt import COMPARISON, Receipt, bare_receipt, read_receipt
from slipstream.experiment.variants import DEFAULT_VARIANTS, SCHEDULE_VARIANTS, Variant
from slipstream.run import nsys
from slipstream.run.agent.autopgle import variables
from slipstream.run.agent.request import APPLY, AUTO, COMPARE, LOOP
from slipstream.run.context import Context, RunResult
from slipstream.run.cost_phase import Costs
from slipstream.run.launcher import job_environment, running
from slipstream.run.preflight import Preflight
from slipstream.run.profile_phase import Precomputed, captured_text
from slipstream.run.rank import is_launched
from slipstream.run.run_dir import DONE, STATUS, done_facts, read_json, sha256
from slipstream.run.trackers.report import ReportMaker
from slipstream.run.trackers.tracking import TRACKED

CONCLUSIVE = ("faster", "slower", "no different")
"""verdicts that are not sought again"""


class ComparePhase:
    """Runs the job; whatever fails on our side, the job runs to its own end."""

    def __init__(
        self, context: Context, preflight: Preflight, precomputed: Precomputed | None
    ) -> None:
        self.context = context
        self.preflight = preflight
        self.precomputed = precomputed
        self.phase = context.run_dir.compare
        ours = SCHEDULE_VARIANTS if context.settings.schedule else ()
        self.variants: Sequence[Variant] = (*DEFAULT_VARIANTS, *ours, *preflight.variants)
        self._mode = ""
        self._known: dict[str, Any] | None = None
        """what an earlier run found, if it compared exactly what would be compared now"""
        self._reported: dict[str, int] = {}
        """when the profile and the costs were made that were reported"""
        self._receipt: Receipt | None = None
        self._report_maker = ReportMaker(self.phase)

    def run(self) -> RunResult:
        try:
            request: Path | None = self._prepare()
        except (OSError, SlipstreamError) as problem:
            self.context.warn(f"{problem}; the job runs as it is")
            self._mode, request = "", None
        settings = self.context.settings
        environment = job_environment(os.environ, request, self._environment())
        stdout = sys.stderr if settings.is_json else None
        is_guarded = is_launched(os.environ)
        with running(settings.command, environment, stdout, is_guarded=is_guarded) as job:
            try:
                code = job.wait(self._follow)
            finally:
                self._report_maker.end()
        assert code is not None
        if self._receipt is None:
            self._receipt = self._made(code)
        self._report_tracked()
        return RunResult(code, self._receipt)

    def _prepare(self) -> Path:
        """Write the request: apply a known winner, compare with known costs, or do it all."""
        run_dir = self.context.run_dir
        more: dict[str, Any] = {
            "variants": self.variants,
            "run_folder": str(run_dir.folder),
            "rank": run_dir.rank,
            "xla_flags": self.preflight.xla_flags,
            # One rank logs for all: the first, where people start their trackers.
            "track": self.context.settings.track if self.context.rank.is_first else (),
        }
        if self.precomputed is not None:
            more |= self.precomputed.request_fields(run_dir)
        self._known = self._known_result()
        if self._known is not None:
            self._mode = APPLY
            for file in (STATUS, TRACKED):
                (self.phase / file).unlink(missing_ok=True)
            self._report_maker.forget()
            more |= self._winners(self._known)
            return self.context.write_request(APPLY, self.phase, **more)
        self._mode = self._new_mode()
        run_dir.clear(self.phase)
        if self._mode == LOOP:
            self._forget_profile()
        return self.context.write_request(self._mode, self.phase, **more)

    def _new_mode(self) -> str:
        if self.context.settings.auto:
            return AUTO
        return LOOP if self.precomputed is None else COMPARE

    def _environment(self) -> dict[str, str]:
        """Variables for the job; AutoPGLE is turned on even if nothing can be compared."""
        ours = variables(os.environ) if self.context.settings.auto else {}
        settings = self.context.settings
        if settings.nsys:
            ours |= nsys.variables(self.context.run_dir.folder, os.environ)
        return {**self.preflight.environment, **ours}

    def _known_result(self) -> dict[str, Any] | None:
        """The facts of an earlier comparison of the same things, if it reached a verdict."""
        found = done_facts(self.phase)
        # Ranks must switch programs at the same call, which only a comparison ensures.
        if found is None or self.precomputed is None or self.context.rank.count > 1:
            return None
        is_same = (
            found.get("jaxlib") == self.precomputed.facts.get("jaxlib")
            and found.get("variants") == [asdict(variant) for variant in self.variants]
            and self._profiled_function(found) is not None
            and all(map(self._has_its_costs, found["functions"]))
            # An order is not kept: it is searched again, and compared.
            and not any(one.name == found.get("chosen") for one in SCHEDULE_VARIANTS)
        )
        return found if is_same and found.get("verdict") in CONCLUSIVE else None

    def _profiled_function(self, found: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Which of the compared functions the profile is of."""
        assert self.precomputed is not None
        wanted = (self.precomputed.facts.get("content"), self.precomputed.costs.digest)
        functions: list[dict[str, Any]] = found.get("functions", [])
        of = (one for one in functions if (one["content"], one["costs_sha256"]) == wanted)
        return next(of, None)

    def _winners(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of a request to apply what an earlier run chose for each function."""
        first = self._profiled_function(found)
        assert first is not None
        others = [
            {name: one[name] for name in ("program", "content", "chosen")}
            | {"costs": str(self.phase / one["costs"]) if one["costs"] else None}
            for one in found["functions"]
            if one is not first
        ]
        return {"chosen": first["chosen"], "others": tuple(others)}

    def _has_its_costs(self, function: Mapping[str, Any]) -> bool:
        """Whether the costs of a compared function are still as they were."""
        try:
            digest = sha256(self.phase / function["costs"]) if function["costs"] else None
        except OSError:
            return False
        return bool(digest == function["costs_sha256"])

    def _forget_profile(self) -> None:
        """Remove the profile and costs of an earlier run that are not used."""
        run_dir = self.context.run_dir
        run_dir.remove(run_dir.profile)
        if self.context.rank.is_first:
            run_dir.remove(run_dir.costs)

    def _follow(self) -> bool:
        """While the job runs: report what the agent found so far. Never ends the job."""
        if self._mode and self._receipt is None:
            if self._mode == LOOP:
                self._report_recorded()
            if self._is_settled():
                self._receipt = self._made(0)
        if self._receipt is not None:
            self._report_maker.follow()
        return False

    def _report_recorded(self) -> None:
        """Report the profile and the costs that the agent made inside the job.

        If another function takes over, there is a second profile, which replaces the first.
        """
        run_dir = self.context.run_dir
        for phase, folder in (("profile", run_dir.profile), ("costs", run_dir.costs)):
            stamp = _stamp(folder / DONE)
            if stamp is None or stamp == self._reported.get(phase):
                continue
            self._reported[phase] = stamp
            facts = done_facts(folder)
            if facts is not None:
                self.context.phase_facts[phase] = facts
                is_profile = phase == "profile"
                text = captured_text(facts) if is_profile else Costs(run_dir.costs_file, facts).text
                self.context.say(phase, text)

    def _report_tracked(self) -> None:
        """Say where the receipt was logged, and what kept it from being logged."""
        found = read_json(self.phase / TRACKED) or {}
        if found.get("logged"):
            self.context.say("track", ", ".join(found["logged"]))
        for problem in found.get("problems", ()):
            self.context.say("", f"not tracked: {problem}")

    def _is_settled(self) -> bool:
        if self._mode == APPLY and (read_json(self.phase / STATUS) or {}).get("state") == "applied":
            return True
        found = done_facts(self.phase)
        return found is not None and found != self._known

    def _made(self, code: int) -> Receipt:
        """The receipt; whatever goes wrong with it, the job's exit code stays the job's."""
        try:
            return self._result(code)
        except Exception as problem:
            why = f"the receipt could not be made: {type(problem).__name__}: {problem}"
            self.context.warn(why)
            return bare_receipt(why)

    def _result(self, code: int) -> Receipt:
        found, status = done_facts(self.phase), read_json(self.phase / STATUS) or {}
        if found is not None and found == self._known:
            return self._applied(found, status, code)
        receipt = self._written(code)
        is_other = bool(receipt.arms) and not status.get("profile_fits")
        if self._mode in (COMPARE, APPLY) and is_other:
            self.context.warn("the profile was of another program, so the job was recorded again")
            for phase in ("profile", "costs"):
                self.context.phase_facts.pop(phase, None)
        if self._mode == LOOP or is_other:
            self._report_recorded()
            if self.context.rank.count == 1:
                receipt = offering_profile_first(receipt, status)
        return self.context.finish(receipt)

    def _written(self, code: int) -> Receipt:
        """The receipt that the agent wrote; if there is none, one that says why."""
        try:
            return read_receipt(self.phase / COMPARISON)
        except BadInput:
            return bare_receipt(self.context.why_not(self.phase, code))

    def _applied(self, found: Mapping[str, Any], status: Mapping[str, Any], code: int) -> Receipt:
        if status.get("state") != "applied":
            why = status.get("why") or "the program of the earlier run did not run here"
            self.context.warn(f"what an earlier run found was not used: {why}")
        else:
            self.context.say("compare", f"as an earlier run found, {_winners_text(found)}")
        try:
            earlier = read_receipt(self.context.run_dir.folder)
            self.context.report_wrong_programs(earlier)
            return earlier
        except BadInput:
            # That run's launcher was gone before its job had a verdict.
            return self.context.finish(self._written(code))


def _stamp(file: Path) -> int | None:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return None


def _winners_text(found: Mapping[str, Any]) -> str:
    faster = {one["program"]: one["chosen"] for one in found["functions"]}
    faster = {name: chosen for name, chosen in faster.items() if chosen != "original"}
    if not faster:
        return "nothing beats the original"
    if len(found["functions"]) == 1:
        return f"{found['chosen']} is faster: it runs"
    return f"these are faster and run: {', '.join(f'{n} ({c})' for n, c in faster.items())}"


def offering_profile_first(receipt: Receipt, status: Mapping[str, Any]) -> Receipt:
    """Where the job could not be recorded while it runs: another way to record it."""
    if status.get("state") != State.SETTLED.value or "before" in receipt.files:
        return receipt
    why = f"{receipt.why}; to record it in a run of its own: slipstream run --profile-first -- …"
    return replace(receipt, why=why)
