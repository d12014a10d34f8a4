"""Candidates without hardware: compiled by the real compiler, then simulated.

settings ─► compile ─► fits? ─► seen before? ─► simulate ─► Outcome
               │ crash, hang, refused, out of memory: recorded as the outcome
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from slipstream.analyses.soundness import soundness
from slipstream.compiler.closing import Closing
from slipstream.compiler.compilation import Compilation
from slipstream.compiler.compile import compiler
from slipstream.compiler.failures import CompileFailed
from slipstream.compiler.targets import Target
from slipstream.compiler.time_limit import TimeLimit, on_busy_cores
from slipstream.errors import Missing, SlipstreamError
from slipstream.machines.machine import Machine
from slipstream.results.prediction import Prediction
from slipstream.results.tuning import (
    CRASH,
    HANG,
    IMPOSSIBLE,
    NO_FIT,
    OK,
    OUT_OF_MEMORY,
    REFUSED,
    WRONG,
)
from slipstream.simulate.prediction import predict
from slipstream.simulate.recorded import RecordedCosts
from slipstream.tune.outcome import Outcome
from slipstream.tune.search.fingerprint import fingerprint_of
from slipstream.tune.search.program_counts import counts_of, most_at_once
from slipstream.tune.space.knob import COSTS
from slipstream.tune.space.knob_catalogue import GRAPH_FLAGS
from slipstream.units import PS_PER_US, format_bytes, format_time

TIMEOUT_S = 600.0
"""a compile that takes longer counts as hung"""
ROUNDING = 1e-3
"""a step shorter than its bound by less than this is rounding: the simulation counts picoseconds"""
_KINDS = {
    "died": CRASH,
    "aborted": CRASH,
    "memory": OUT_OF_MEMORY,
    "refused": REFUSED,
    "invalid": REFUSED,
}


@dataclass(frozen=True)
class ScreenSpec:
    """What a screen needs; picklable, so that a process on another machine can make the screen."""

    target: Target
    machine: Machine
    costs: RecordedCosts | None = None
    most_memory_bytes: int | None = None
    timeout_s: float = TIMEOUT_S
    times_compiles: bool = False
    """whole compiles, of which nothing is known or left out: their time is the objective"""

    def runner(self, seen: dict[str, Outcome] | None = None) -> Screen:
        """`seen`: outcomes of programs that were already simulated, by hash."""
        return Screen(
            self.target,
            self.machine,
            costs=self.costs,
            most_memory_bytes=self.most_memory_bytes,
            timeout_s=self.timeout_s,
            times_compiles=self.times_compiles,
            seen=seen,
        )


class Screen(Closing):
    """Compiles and simulates candidates one after the other, in one compiler process."""

    def __init__(
        self,
        target: Target,
        machine: Machine,
        *,
        costs: RecordedCosts | None = None,
        most_memory_bytes: int | None = None,
        timeout_s: float = TIMEOUT_S,
        times_compiles: bool = False,
        seen: dict[str, Outcome] | None = None,
    ) -> None:
        self._machine = machine
        self._costs = costs
        self._most_memory_bytes = most_memory_bytes
        self._timeout_s = timeout_s
        self._seen = seen if seen is not None else {}
        self._session = compiler(
            target, on=machine, program_only=not times_compiles, reads_cache=not times_compiles
        )

    def evaluate(self, settings: Mapping[str, str]) -> Outcome:
        """Compile and simulate one candidate; failures are outcomes, not errors."""
        limit = TimeLimit(self._timeout_s, self._session.abort)
        try:
            with limit:
                compiled = self._compiled(settings)
        except SlipstreamError as error:
            return self._failed(error, limit.is_passed)
        return self._simulated(compiled, settings)

    def _compiled(self, settings: Mapping[str, str]) -> Compilation:
        flags = {name: value for name, value in settings.items() if name.startswith("xla_")}
        uses_costs = settings.get(COSTS) == "on" and self._costs is not None
        table = self._costs.for_scheduler if uses_costs and self._costs is not None else None
        return self._session.compile(flags=flags, costs=table)

    def _failed(self, error: SlipstreamError, is_hung: bool) -> Outcome:
        if is_hung:
            limit_s = self._timeout_s
            note = f"the compile took more than {limit_s:.0f} s{on_busy_cores(limit_s)}"
            return Outcome(HANG, note=note)
        if isinstance(error, CompileFailed):
            return Outcome(_KINDS[error.kind], note=str(error))
        if isinstance(error, Missing):
            return Outcome(OUT_OF_MEMORY, note=str(error))
        return Outcome(REFUSED, note=str(error))

    def _simulated(self, compiled: Compilation, settings: Mapping[str, str]) -> Outcome:
        memory = compiled.memory
        most = min(memory.capacity_bytes, self._most_memory_bytes or memory.capacity_bytes)
        if memory.peak_bytes > most:
            note = f"needs {format_bytes(memory.peak_bytes)} of {format_bytes(most)}"
            return Outcome(
                NO_FIT, memory_bytes=memory.peak_bytes, compile_s=compiled.seconds, note=note
            )
        found = fingerprint_of(compiled.program)
        launched = [f"{name}={settings[name]}" for name in GRAPH_FLAGS if name in settings]
        program = " ".join([found.schedule, *launched])
        if program in self._seen:
            return _judged(replace(self._seen[program], compile_s=compiled.seconds), settings)
        costs = self._costs
        prediction = predict(
            compiled.program,
            self._machine,
            costs.costs if costs is not None else None,
            source=costs.source if costs is not None else None,
            compilation=compiled,
        )
        self._seen[program] = _outcome(prediction, compiled, program, found.work)
        return _judged(self._seen[program], settings)

    def close(self) -> None:
        """Also ends a compile that another thread is waiting for."""
        self._session.abort()
        self._session.close()


def _outcome(prediction: Prediction, compiled: Compilation, program: str, work: str) -> Outcome:
    return Outcome(
        status=OK,
        step_us=prediction.step_us,
        memory_bytes=prediction.memory_bytes,
        compile_s=compiled.seconds,
        exposed_us=prediction.exposed_communication_us + prediction.exposed_copy_us,
        least_us=prediction.bounds.least_us,
        program=program,
        work=work,
        low_us=prediction.low_us,
        high_us=prediction.high_us,
        counts=counts_of(compiled.program),
        at_once=most_at_once(compiled.program, prediction.timeline)
        if prediction.timeline is not None
        else None,
        parts_us={
            "compute": prediction.compute_us,
            "communication": prediction.communication_us,
            "exposed communication": prediction.exposed_communication_us,
            "exposed copies": prediction.exposed_copy_us,
            "idle": prediction.idle_us,
        },
        clock_hz=prediction.power.clock_hz if prediction.power is not None else None,
        note=_worst_wait(prediction),
        wrong=soundness(compiled.program).text,
    )


def _judged(outcome: Outcome, settings: Mapping[str, str]) -> Outcome:
    """Candidates with wrong results, or below their own bound, never win.

    The baseline keeps its score, as the reference.
    """
    if not settings:
        return outcome
    if outcome.wrong:
        return replace(outcome, status=WRONG, note=outcome.wrong)
    step, least = outcome.step_us, outcome.least_us
    if step is not None and least is not None and step < least * (1 - ROUNDING):
        note = (
            f"simulated in {format_time(step * PS_PER_US)}, but no schedule of its program takes "
            f"less than {format_time(least * PS_PER_US)}: an error of the model, not a gain"
        )
        return replace(outcome, status=IMPOSSIBLE, note=note)
    return outcome


def _worst_wait(prediction: Prediction) -> str:
    if not prediction.waits:
        return ""
    wait = prediction.waits[0]
    return f"{wait.kind} {wait.instruction} waits {wait.us / 1e3:.2f} ms: {wait.why}"
