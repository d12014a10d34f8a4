"""Phases 4 and 5: the job itself, with the agent inside it, which compiles and compares."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from slipstream.errors import SlipstreamError
from slipstream.experiment.receipt import COMPARISON, Receipt, bare_receipt, read_receipt
from slipstream.experiment.variants import DEFAULT_VARIANTS, Variant
from slipstream.run import nsys
from slipstream.run.agent.autopgle import variables
from slipstream.run.agent.request import APPLY, AUTO, COMPARE, LOOP
from slipstream.run.context import Context, RunResult
from slipstream.run.launcher import job_environment, running
from slipstream.run.preflight import Preflight
from slipstream.run.profile_phase import Precomputed
from slipstream.run.rank import is_launched
from slipstream.run.run_dir import STATUS, done_facts, read_json, write_json

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
        self.variants: Sequence[Variant] = (*DEFAULT_VARIANTS, *preflight.variants)
        self._mode = ""
        self._known: dict[str, Any] | None = None
        """what an earlier run found, if it compared exactly what would be compared now"""
        self._receipt: Receipt | None = None

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
            code = job.wait(self._follow)
        assert code is not None
        if self._receipt is None:
            self._receipt = self._made(code)
        return RunResult(code, self._receipt)

    def _prepare(self) -> Path:
        """Write the request: apply a known winner, compare with known costs, or do it all."""
        run_dir = self.context.run_dir
        more: dict[str, Any] = {"variants": self.variants}
        if self.precomputed is not None:
            more |= self.precomputed.request_fields(run_dir)
        self._known = self._known_result()
        if self._known is not None:
            self._mode = APPLY
            (self.phase / STATUS).unlink(missing_ok=True)
            return self.context.write_request(
                APPLY, self.phase, **more, chosen=self._known["chosen"]
            )
        self._mode = self._new_mode()
        run_dir.clear(self.phase)
        write_json(self.phase / "inputs.json", self._inputs())
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
        same = read_json(self.phase / "inputs.json") == self._inputs()
        content = found.get("content") == self.precomputed.facts.get("content")
        return found if same and content and found.get("verdict") in CONCLUSIVE else None

    def _inputs(self) -> dict[str, Any]:
        found = self.precomputed
        return {
            "content": found.facts.get("content") if found else None,
            "costs": found.costs.digest if found else None,
            "variants": [[v.name, dict(v.flags), v.uses_costs] for v in self.variants],
            "jaxlib": found.facts.get("jaxlib") if found else None,
        }

    def _follow(self) -> bool:
        """While the job runs: report the verdict as soon as there is one. Never ends the job."""
        if self._mode and self._receipt is None and self._is_settled():
            self._receipt = self._made(0)
        return False

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
            for phase in (self.context.run_dir.profile, self.context.run_dir.costs):
                self.context.run_dir.remove(phase)
        return self.context.finish(receipt)

    def _written(self, code: int) -> Receipt:
        """The receipt that the agent wrote; if there is none, one that says why."""
        try:
            return read_receipt(self.phase / COMPARISON)
        except (OSError, ValueError, TypeError):
            return bare_receipt(self.context.why_not(self.phase, code))

    def _applied(self, found: Mapping[str, Any], status: Mapping[str, Any], code: int) -> Receipt:
        chosen = found["chosen"]
        if status.get("state") != "applied":
            why = status.get("why") or "the program of the earlier run did not run here"
            self.context.warn(f"what an earlier run found was not used: {why}")
        elif chosen == "original":
            self.context.say("compare", "as an earlier run found, nothing beats the original")
        else:
            self.context.say("compare", f"as an earlier run found, {chosen} is faster: it runs")
        try:
            earlier = read_receipt(self.context.run_dir.folder)
            self.context.report_wrong_programs(earlier)
            return earlier
        except (OSError, ValueError, TypeError):
            # That run's launcher was gone before its job had a verdict.
            return self.context.finish(self._written(code))
