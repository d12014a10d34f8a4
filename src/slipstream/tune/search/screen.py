"""Candidates without hardware: compiled by the real compiler, and simulated.

settings ─► compile ─► fits? ─► seen before? ─► simulate ─► Outcome
               │ crash, hang, refused, out of memory: recorded as such
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from slipstream.analyses.soundness import soundness
from slipstream.compiler.closing import Closing
from slipstream.compiler.compilation import Compilation
from slipstream.compiler.compile import compiler
from slipstream.compiler.failures import CompileFailed
from slipstream.compiler.targets import Target
from slipstream.errors import Missing, SlipstreamError
from slipstream.machines.machine import Machine
from slipstream.profile.program import Program
from slipstream.results.prediction import Prediction
from slipstream.results.tuning import CRASH, HANG, NO_FIT, OK, OUT_OF_MEMORY, REFUSED, WRONG
from slipstream.simulate.prediction import predict
from slipstream.simulate.recorded import RecordedCosts
from slipstream.tune.outcome import Outcome
from slipstream.tune.search.fingerprint import fingerprint_of
from slipstream.tune.space.knob import COSTS
from slipstream.tune.space.knob_catalogue import GRAPH_FLAGS
from slipstream.units import format_bytes

TIMEOUT_S = 600.0
"""a compile that takes longer hangs, as far as a search is concerned"""
_KINDS = {"died": CRASH, "memory": OUT_OF_MEMORY, "refused": REFUSED}


@dataclass(frozen=True)
class ScreenSpec:
    """All that a screen is made of: it can be made here, or in a process on another machine."""

    target: Target
    machine: Machine
    costs: RecordedCosts | None = None
    most_memory_bytes: int | None = None
    timeout_s: float = TIMEOUT_S
    shares_kernels: bool = True

    def screen(self, seen: dict[str, Outcome] | None = None) -> Screen:
        """`seen`: what became of programs that were simulated before, by their hash."""
        return Screen(
            self.target,
            self.machine,
            costs=self.costs,
            most_memory_bytes=self.most_memory_bytes,
            timeout_s=self.timeout_s,
            shares_kernels=self.shares_kernels,
            seen=seen,
        )


class Screen(Closing):
    """Compiles and simulates candidates, one after the other, in one kept compiler process."""

    def __init__(
        self,
        target: Target,
        machine: Machine,
        *,
        costs: RecordedCosts | None = None,
        most_memory_bytes: int | None = None,
        timeout_s: float = TIMEOUT_S,
        shares_kernels: bool = True,
        seen: dict[str, Outcome] | None = None,
    ) -> None:
        self._machine = machine
        self._costs = costs
        self._most_memory_bytes = most_memory_bytes
        self._timeout_s = timeout_s
        self._seen = seen if seen is not None else {}
        self._session = compiler(target, on=machine, shares_kernels=shares_kernels)

    def evaluate(self, settings: Mapping[str, str]) -> Outcome:
        """One candidate; whatever goes wrong with it is its outcome, not an error."""
        hung = threading.Event()
        alarm = threading.Timer(self._timeout_s, self._end, [hung])
        alarm.daemon = True
        alarm.start()
        try:
            compiled = self._compiled(settings)
        except SlipstreamError as error:
            return self._failed(error, hung.is_set())
        finally:
            alarm.cancel()
        return self._simulated(compiled, settings)

    def _end(self, hung: threading.Event) -> None:
        hung.set()
        self._session.abort()

    def _compiled(self, settings: Mapping[str, str]) -> Compilation:
        flags = {name: value for name, value in settings.items() if name.startswith("xla_")}
        uses_costs = settings.get(COSTS) == "on" and self._costs is not None
        table = self._costs.for_scheduler if uses_costs and self._costs is not None else None
        return self._session.compile(flags=flags, costs=table)

    def _failed(self, error: SlipstreamError, is_hung: bool) -> Outcome:
        if is_hung:
            return Outcome(HANG, note=f"the compile took more than {self._timeout_s:.0f} s")
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
        """A compile that another thread waits for ends here, too."""
        self._session.abort()
        self._session.close()


def _outcome(prediction: Prediction, compiled: Compilation, program: str, work: str) -> Outcome:
    return Outcome(
        OK,
        prediction.step_us,
        prediction.memory_bytes,
        compiled.seconds,
        prediction.exposed_communication_us + prediction.exposed_copy_us,
        prediction.bounds.least_us,
        program,
        work,
        _collectives(compiled.program),
        {
            "compute": prediction.compute_us,
            "communication": prediction.communication_us,
            "exposed communication": prediction.exposed_communication_us,
            "exposed copies": prediction.exposed_copy_us,
            "idle": prediction.idle_us,
        },
        note=_worst_wait(prediction),
        wrong=soundness(compiled.program).text,
    )


def _judged(outcome: Outcome, settings: Mapping[str, str]) -> Outcome:
    """What is wrong never wins; only the baseline stays what it is, for the rest to be told by."""
    if not outcome.wrong or not settings:
        return outcome
    return replace(outcome, status=WRONG, note=outcome.wrong)


def _worst_wait(prediction: Prediction) -> str:
    if not prediction.waits:
        return ""
    wait = prediction.waits[0]
    return f"{wait.kind} {wait.instruction} waits {wait.us / 1e3:.2f} ms: {wait.why}"


def _collectives(program: Program) -> dict[str, tuple[int, int]]:
    """How many collectives of each kind a step runs, and the bytes of all of them."""
    counts: dict[str, int] = defaultdict(int)
    sizes: dict[str, int] = defaultdict(int)
    for instruction in program.scheduled:
        collective = instruction.collective
        if collective is None or instruction.is_done:
            continue
        times = program.executions(instruction.name) or 1
        counts[collective.kind] += times
        sizes[collective.kind] += times * collective.bytes
    return {kind: (counts[kind], sizes[kind]) for kind in counts}
