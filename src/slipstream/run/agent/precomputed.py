"""Arms from the costs of an earlier phase, or the one arm that an earlier run chose."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from slipstream.costs.coverage import Coverage
from slipstream.costs.files import read_costs, serialized
from slipstream.costs.table import CostTable
from slipstream.errors import SlipstreamError
from slipstream.experiment.plan import ExperimentOutcome, ExperimentPlan
from slipstream.experiment.prepare import Preparation, made_arms
from slipstream.experiment.variants import Arm, make_arm, original_arm
from slipstream.jaxhooks.compiled_program import XLA_ERRORS, CompiledProgram
from slipstream.run.agent.request import Request

log = logging.getLogger("slipstream")


def with_precomputed_costs(request: Request) -> Preparation:
    """A preparation that compiles the arms of the compare phase with the request's costs."""

    def prepare(
        compiled: CompiledProgram, plan: ExperimentPlan, outcome: ExperimentOutcome
    ) -> None:
        original = original_arm(compiled)
        table, outcome.costs_bytes = _costs(request, original)
        outcome.costs = Path(request.costs) if request.costs else None
        outcome.coverage = coverage_from(request.coverage)
        if request.profile:
            outcome.profiles["before"] = Path(request.profile)
        outcome.arms = made_arms(compiled, plan, outcome, original, table)

    return prepare


def coverage_facts(coverage: Coverage) -> dict[str, Any]:
    """The facts of a coverage that a later phase needs."""
    names = ("program", "share", "basis", "found", "fallback", "stale")
    facts = {name: getattr(coverage, name) for name in names}
    return facts | {"missing": len(coverage.missing)}


def coverage_from(facts: Mapping[str, Any]) -> Coverage | None:
    if not facts:
        return None
    plain = {name: facts[name] for name in ("program", "share", "basis", "found", "fallback")}
    return Coverage(**plain, missing=(), unused=(), stale=tuple(facts.get("stale", ())))


def _costs(request: Request, original: Arm) -> tuple[CostTable | None, bytes | None]:
    if not request.costs:
        return None, None
    table = read_costs(request.costs)
    fingerprint = original.program.fingerprint if original.program else None
    return table, serialized(table, fingerprint)


class Applier:
    """Compiles what an earlier comparison chose, and runs it as soon as it is ready."""

    def __init__(
        self, compiled: CompiledProgram, request: Request, on_end: Callable[[str | None], None]
    ) -> None:
        self.compiled = compiled
        self._request = request
        self._on_end = on_end
        self._arm: Arm | None = None
        self._worker = threading.Thread(target=self._work, name="slipstream", daemon=True)
        self._worker.start()

    def on_call(self, arguments: Sequence[Any], run: Callable[[], Any]) -> Any:
        if not self._worker.is_alive() and not self.compiled.is_settled:
            self.compiled.is_settled = True
            problem = self._arm.error if self._arm else "the chosen program was not compiled"
            if self._arm is not None and self._arm.executable is not None:
                self.compiled.run_with(self._arm.executable)
                problem = None
            self._on_end(problem)
        return run()

    def join(self, timeout_s: float) -> None:
        self._worker.join(timeout_s)

    def _work(self) -> None:
        chosen = [one for one in self._request.variants if one.name == self._request.chosen]
        try:
            original = original_arm(self.compiled)
            table, costs = _costs(self._request, original)
            for variant in chosen:
                self._arm = make_arm(self.compiled, variant, costs, table, original.program)
        except (OSError, SlipstreamError, *XLA_ERRORS):
            log.warning("slipstream: the chosen program was not compiled", exc_info=True)
