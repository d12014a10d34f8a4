"""`predict`: how long a step would take, where it would wait, and the most that could be won."""

from __future__ import annotations

from collections.abc import Mapping

from slipstream.analyses.bounds import bounds
from slipstream.analyses.summary import StepTimes, step_times
from slipstream.compiler.compilation import Compilation
from slipstream.costs.table import CostTable
from slipstream.machines.machine import Machine
from slipstream.profile.profile import Profile
from slipstream.profile.program import Instruction, Program
from slipstream.profile.semantics.flops import work
from slipstream.results.prediction import Notice, Prediction
from slipstream.simulate.costing import basis_shares, costing
from slipstream.simulate.engine import Simulation, simulation
from slipstream.simulate.waits import worst_waits


def predict(
    program: Program,
    machine: Machine,
    costs: CostTable | None = None,
    *,
    source: Program | None = None,
    compilation: Compilation | None = None,
    command_buffers: bool | None = None,
) -> Prediction:
    """The prediction for an optimised program.

    `source` is the program that the costs were measured on; `compilation` is what the program
    came from, for its memory and for what XLA said.
    """
    estimates = costing(program, machine, costs, source)
    step = simulation(program, machine, estimates=estimates, command_buffers=command_buffers)
    times = step_times(step.profile)
    memory = compilation.memory.peak_bytes if compilation is not None else None
    return Prediction(
        machine.spec,
        machine.devices,
        program.name,
        times.wall_us,
        times.compute_us,
        times.communication_us,
        times.exposed_communication_us,
        times.copy_us,
        times.exposed_copy_us,
        times.idle_us,
        memory,
        machine.gpu.memory_bytes,
        _utilisation(program, machine, step, times),
        bounds(program, estimates, machine),
        basis_shares(estimates, step.executions),
        worst_waits(program, step),
        (*_said(compilation), *_assumptions(step.profile)),
        step.profile,
    )


def _said(compilation: Compilation | None) -> tuple[Notice, ...]:
    messages = compilation.messages if compilation is not None else ()
    return tuple(Notice(m.code, m.text, m.severity, m.instruction) for m in messages)


def _assumptions(profile: Profile) -> tuple[Notice, ...]:
    """What the simulation assumed, beside what XLA said."""
    return tuple(
        Notice(warning.code, warning.message, "warning")
        for warning in profile.warnings
        if warning.code != "simulated"
    )


def _utilisation(
    program: Program, machine: Machine, step: Simulation, times: StepTimes
) -> float | None:
    """Floating-point work against the peak of the type that most of it is done in."""
    peaks = machine.gpu.peak_flops
    by_type: dict[str, float] = {}
    for name, count in step.executions.items():
        instruction = program.instruction(name)
        done = work(program, instruction).flops * count
        kind = _element_type(program, instruction, peaks)
        by_type[kind] = by_type.get(kind, 0.0) + done
    total = sum(by_type.values())
    most = max(by_type, key=lambda kind: by_type[kind], default="")
    peak = peaks.get(most)
    return total / (times.wall_us * 1e-6 * peak) if total and peak and times.wall_us else None


def _element_type(program: Program, instruction: Instruction, peaks: Mapping[str, float]) -> str:
    """The type that an instruction multiplies in: that of its first array operand."""
    inner = program.wrapped(instruction.name) if instruction.is_start else None
    for operand in program.operands(inner or instruction):
        for leaf in operand.shape.leaves():
            kind = "f8" if leaf.dtype.startswith("f8") else leaf.dtype
            if kind in peaks:
                return kind
    return "bf16"
