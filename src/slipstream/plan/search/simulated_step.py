"""A compiled combination as an outcome: its step simulated, unless the program is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace

from slipstream.compiler.compilation import Compilation
from slipstream.plan.report.limits import limits_of
from slipstream.plan.search.bounds import accumulator_text
from slipstream.plan.search.facts import EvaluationSpec, Facts
from slipstream.results.tuning import NO_FIT, OK
from slipstream.simulate.prediction import predict
from slipstream.tune.outcome import Outcome
from slipstream.tune.search.fingerprint import fingerprint_of
from slipstream.units import format_bytes


def simulated_step(
    compiled: Compilation, facts: Facts, spec: EvaluationSpec, programs: Mapping[str, Outcome]
) -> Outcome:
    """`programs`: the outcomes of programs that were simulated before, by hash."""
    program = fingerprint_of(compiled.program).schedule
    if (same := programs.get(program)) is not None:
        details = {**(same.details or {}), **facts.details}
        return replace(same, compile_s=compiled.seconds, details=details)
    costs = spec.costs
    prediction = predict(
        compiled.program,
        spec.machine,
        costs.costs if costs is not None else None,
        source=costs.source if costs is not None else None,
        compilation=compiled,
    )
    memory, limit = compiled.memory.peak_bytes + facts.accumulator_bytes, spec.memory_limit
    prediction = replace(prediction, memory_bytes=memory)
    limits, parts = limits_of(prediction, compiled.program, spec.machine)
    # What does not fit is simulated nevertheless: it shows what more memory would give.
    status, note = OK, ""
    if memory > limit:
        status, note = NO_FIT, f"needs {format_bytes(memory)} of {format_bytes(limit)}"
        note += accumulator_text(facts.accumulator_bytes)
    return facts.outcome(
        status,
        step_us=prediction.step_us,
        low_us=prediction.low_us,
        high_us=prediction.high_us,
        memory_bytes=memory,
        compile_s=compiled.seconds,
        least_us=prediction.bounds.least_us,
        exposed_us=prediction.exposed_communication_us,
        program=program,
        parts_us=parts,
        clock_hz=prediction.power.clock_hz if prediction.power is not None else None,
        note=note,
        limits=[asdict(one) for one in limits],
    )
