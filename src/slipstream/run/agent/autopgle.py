"""AutoPGLE, measured: JAX profiles a program and recompiles it; both are timed, interleaved.

    calls   1 … runs              + 1                  a few more   rounds × arms
    runs    first, JAX profiles   JAX compiles again   second       original, second, first in turn

The job's own steps before and after the recompile say little: JAX's profiler ran during all the
steps before, and JAX compiles its first program without command buffers. Without AutoPGLE the job
would run neither of the two, so that program is compiled here, and all three are compared.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

from slipstream.costs.files import read_costs
from slipstream.errors import BadInput, SlipstreamError
from slipstream.experiment.plan import ExperimentOutcome, ExperimentPlan
from slipstream.experiment.prepare import Preparation
from slipstream.experiment.variants import (
    NO_GRAPHS,
    STRICT,
    Arm,
    Variant,
    describe_made,
    drop_duplicates,
    original_arm,
)
from slipstream.jaxhooks.compiled_program import XLA_ERRORS, CompiledProgram
from slipstream.jaxhooks.compiling import costs_in
from slipstream.jaxhooks.shutdown import raise_if_shutting_down
from slipstream.units import format_time

ENABLE, RUNS, PERCENTILE = (
    "JAX_ENABLE_PGLE", "JAX_PGLE_PROFILING_RUNS", "JAX_PGLE_AGGREGATION_PERCENTILE",
)  # fmt: skip
DEFAULTS = {RUNS: "3", PERCENTILE: "90"}
"""JAX's defaults, set explicitly so that the receipt has them"""
VARIANT = Variant("AutoPGLE", uses_costs=True)
FIRST = NO_GRAPHS
"""how JAX compiles a program that it is going to profile"""
EMPTY = (
    "JAX's profiler saw no kernels, so its profile is empty: another tool may hold CUPTI "
    "(DCGM, Nsight Systems), or there is no GPU; see: slipstream doctor"
)
_MOST_CALLS = 200


def variables(base: Mapping[str, str]) -> dict[str, str]:
    """The variables that turn AutoPGLE on; the user's own values win."""
    found = {ENABLE: "true"} | {name: base.get(name) or text for name, text in DEFAULTS.items()}
    for name, least in ((RUNS, 1), (PERCENTILE, 0)):
        if not found[name].isdigit() or int(found[name]) < least:
            raise BadInput(
                f"{name} is {found[name]!r}; expected a number, at least {least}: "
                f"{name}={DEFAULTS[name]} is JAX's default"
            )
    return found


class RecompiledPrograms:
    """Programs that JAX compiled twice, the second time with a profile of the first."""

    def __init__(self) -> None:
        self._by_content: dict[tuple[str, bytes], CompiledProgram] = {}
        self._first_of: dict[int, CompiledProgram] = {}
        self._calls_s: dict[int, list[float]] = {}

    def compiled(self, program: CompiledProgram) -> None:
        plain = self._by_content.setdefault((program.name, program.stablehlo), program)
        if plain is not program and plain.calls:
            self._first_of[id(program)] = plain

    def called(self, program: CompiledProgram) -> None:
        calls = self._calls_s.setdefault(id(program), [])
        if len(calls) < _MOST_CALLS:
            calls.append(time.perf_counter())

    def first_of(self, program: CompiledProgram) -> CompiledProgram | None:
        return self._first_of.get(id(program))

    def clear(self) -> None:
        """Forget the programs: they hold device memory, which JAX may want to free."""
        self._by_content.clear()
        self._first_of.clear()

    def seen_us(self, program: CompiledProgram, plain: CompiledProgram) -> dict[str, float | None]:
        """Median time between calls, without the first call, which compiles."""
        return {"before": self._pace_us(plain), "after": self._pace_us(program)}

    def _pace_us(self, program: CompiledProgram) -> float | None:
        calls = self._calls_s.get(id(program), [])[1:]
        between = [(b - a) * 1e6 for a, b in zip(calls, calls[1:], strict=False)]
        return median(between) if between else None


def facts_of(program: CompiledProgram, seen_us: Mapping[str, float | None]) -> dict[str, Any]:
    """How AutoPGLE was set up and what it made, for the receipt."""
    config: Any = import_module("jax").config
    return {
        "profiling_runs": int(config.jax_pgle_profiling_runs),
        "percentile": int(config.jax_pgle_aggregation_percentile),
        "profile_bytes": len(profile_in(program)),
        "compile_s": program.compile_s,
        "seen_us": dict(seen_us),
    }


def seen_note(seen_us: Mapping[str, float | None]) -> str:
    before, after = seen_us.get("before"), seen_us.get("after")
    if before is None or after is None:
        return "the job made too few steps before or after JAX's second compile to show a change"
    times = " → ".join(format_time(us * 1e6) for us in (before, after))
    return (
        f"the job's own steps before and after JAX's second compile: {times}; the verdict doesn't "
        "use these, because they are not interleaved and the first ran under JAX's profiler"
    )


def profile_in(program: CompiledProgram) -> bytes:
    """The profile that JAX compiled the program with."""
    return costs_in(program.options)


def with_both_programs(second: Any, first: Any) -> Preparation:
    """A preparation: JAX's two programs and the original as arms; XLA checks the costs."""

    def prepare(
        compiled: CompiledProgram, plan: ExperimentPlan, outcome: ExperimentOutcome
    ) -> None:
        without = compiled.recompile({}, b"")
        raise_if_shutting_down()
        with compiled.lock:
            compiled.original = without
        original, arm = original_arm(compiled), Arm(VARIANT, second)
        profile = profile_in(compiled)
        table = None
        if profile:
            table = _read_profile(profile, plan.folder / "costs.pb", outcome)
            arm.is_strict = _passes_strict_check(compiled)
        else:
            outcome.notes.append(EMPTY)
        describe_made(arm, table)
        plain = Arm(FIRST, first)
        describe_made(plain)
        outcome.arms = [original, arm, plain]
        drop_duplicates(outcome.arms, compiled.platform, compiled.flags_in_effect)

    return prepare


def _read_profile(profile: bytes, file: Path, outcome: ExperimentOutcome) -> Any:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(profile)
        outcome.costs = file
        return read_costs(file)
    except (OSError, SlipstreamError) as problem:
        outcome.notes.append(f"JAX's profile could not be read: {problem}")
        return None


def _passes_strict_check(compiled: CompiledProgram) -> bool:
    """Whether the program compiles with XLA's own check that no cost is missing."""
    try:
        compiled.recompile(STRICT)
    except XLA_ERRORS:
        return False
    return True
