"""`predict`: how long a step takes on a machine, where it waits, and what overlap could save."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from slipstream.analyses.bounds import bounds
from slipstream.analyses.roofline import roofline
from slipstream.analyses.summary import step_times
from slipstream.compiler.compilation import MEMORY_LIMIT, Compilation
from slipstream.costs.table import CostTable
from slipstream.machines.jitter import spread
from slipstream.machines.machine import Machine
from slipstream.profile.profile import Profile
from slipstream.profile.program import Instruction, Program
from slipstream.profile.semantics.backend_config import call_name
from slipstream.profile.semantics.categories import category
from slipstream.profile.semantics.names import describe, source
from slipstream.profile.simulated import CODE
from slipstream.results.prediction import Notice, Prediction, UnknownKernel, WorstWait
from slipstream.results.what_if import NetworkWhatIf
from slipstream.simulate.costing import basis_shares
from slipstream.simulate.engine import Simulation, Wait, all_waits, simulation
from slipstream.simulate.what_if import Asked, network_what_if
from slipstream.units import PS_PER_US


def predict(
    program: Program,
    machine: Machine,
    costs: CostTable | None = None,
    *,
    source: Program | None = None,
    compilation: Compilation | None = None,
    command_buffers: bool | None = None,
    networks: Sequence[Asked] | None = None,
) -> Prediction:
    """Predict the step of an optimised program on a machine.

    `source` is the program that the costs were measured on; `compilation` is the compile that the
    program came from, for its memory use and XLA's messages. `networks` are others to simulate it
    with, as (gigabits per second of a host, latency in microseconds); empty for the usual ones.
    """
    step = simulation(program, machine, costs, source=source, command_buffers=command_buffers)
    times = step_times(step.profile)
    low, high = band(program, machine, step, is_at_memory_limit=_is_at_limit(compilation))
    memory = compilation.memory.peak_bytes if compilation is not None else None
    what_if: NetworkWhatIf | None = None
    if networks is not None:
        what_if = network_what_if(program, machine, step, networks, command_buffers)
    return Prediction(
        machine=machine.spec,
        devices=machine.devices,
        program=program.name,
        step_us=times.wall_us,
        low_us=times.wall_us * low,
        high_us=times.wall_us * high,
        compute_us=times.compute_us,
        communication_us=times.communication_us,
        exposed_communication_us=times.exposed_communication_us,
        copy_us=times.copy_us,
        exposed_copy_us=times.exposed_copy_us,
        idle_us=times.idle_us,
        memory_bytes=memory,
        memory_capacity_bytes=machine.chip.memory_bytes,
        mfu=roofline(step.profile, machine.chip).mfu,
        bounds=bounds(program, step.estimates, machine),
        basis=basis_shares(step.estimates, step.executions),
        waits=_waits(program, step),
        messages=(*_messages(compilation), *_assumptions(step.profile)),
        unknown=_unknown(program, step, times.compute_us),
        power=step.power,
        what_if=what_if,
        timeline=step.profile,
    )


def band(
    program: Program, machine: Machine, step: Simulation, *, is_at_memory_limit: bool = False
) -> tuple[float, float]:
    """The ends of the step's 90% band, relative to its time: (0.93, 1.08).

    At the limit of its memory, XLA's scheduler may as well have hidden nothing: small differences
    between two compiles of one program decide. The upper end is then that of such a step.
    """
    waited = {wait.instruction for wait in step.waits if wait.us > 0} | step.inline
    # An asynchronous operation that is hidden may take longer, and the step is the same.
    counted = {
        name: count
        for name, count in step.executions.items()
        if name in waited or not program.instruction(name).is_start
    }
    low, high = spread(step.estimates, counted, machine, _slowed(program, step))
    return low, high * (_without_overlap(step) if is_at_memory_limit else 1.0)


def _is_at_limit(compilation: Compilation | None) -> bool:
    messages = compilation.messages if compilation is not None else ()
    return any(message.code == MEMORY_LIMIT for message in messages)


def _without_overlap(step: Simulation) -> float:
    """The step with everything one after the other, relative to its time; at least 1."""
    times = step_times(step.profile)
    alone_us = times.idle_us + sum(
        step.estimates[name].us * count
        for name, count in step.executions.items()
        if name in step.estimates
    )
    return max(1.0, alone_us / times.wall_us) if times.wall_us else 1.0


def _slowed(program: Program, step: Simulation) -> float:
    """How much longer kernels take beside collectives than alone, as a share of the step."""
    took = _durations(step.profile)
    extra_us = sum(
        max(0.0, took.get(name, 0.0) - step.estimates[name].us * count)
        for name, count in step.executions.items()
        if name in step.estimates and not program.instruction(name).is_start
    )
    wall_us = step_times(step.profile).wall_us
    return extra_us / wall_us if wall_us else 0.0


def _messages(compilation: Compilation | None) -> tuple[Notice, ...]:
    messages = compilation.messages if compilation is not None else ()
    return tuple(Notice(m.code, m.text, m.severity, m.instruction) for m in messages)


def _assumptions(profile: Profile) -> tuple[Notice, ...]:
    """The assumptions of the simulation."""
    return tuple(
        Notice(warning.code, warning.message, "warning")
        for warning in profile.warnings
        if warning.code != CODE
    )


def _unknown(program: Program, step: Simulation, compute_us: float) -> tuple[UnknownKernel, ...]:
    """Kernels without a model, by name, the longest first."""
    found: dict[str, tuple[int, float]] = {}
    for name, estimate in step.estimates.items():
        times = step.executions.get(name, 0)
        if estimate.basis == "default" and times:
            instruction = program.instruction(name)
            is_fused = instruction.opcode == "fusion"
            label = describe(program, instruction) if is_fused else call_name(instruction)
            count, us = found.get(label, (0, 0.0))
            found[label] = (count + times, us + estimate.us * times)
    rows = [
        UnknownKernel(label, count, us, us / compute_us if compute_us else 0.0)
        for label, (count, us) in found.items()
    ]
    return tuple(sorted(rows, key=lambda row: -row.us))


def _waits(program: Program, step: Simulation) -> tuple[WorstWait, ...]:
    """All waits of a step, the longest first, and why they are not hidden."""
    took = _durations(step.profile)
    return tuple(_described(program, step, wait, took) for wait in all_waits(step))


def _durations(profile: Profile) -> dict[str, float]:
    """Microseconds of each instruction in the timeline: more than alone where links are shared."""
    events = profile.events
    total = np.bincount(events["instruction"][:], events["duration_ps"][:] / PS_PER_US)
    return {events.texts[index]: float(total[index]) for index in np.flatnonzero(total).tolist()}


def _described(
    program: Program, step: Simulation, wait: Wait, took: Mapping[str, float]
) -> WorstWait:
    start = program.instruction(wait.instruction)
    inner = program.wrapped(start.name) or start
    collective = program.collective_of(start)
    return WorstWait(
        instruction=start.name,
        kind=category(program, start),
        us=wait.us,
        times=wait.times,
        bytes=collective.bytes if collective is not None else None,
        source=source(program, inner) or source(program, start),
        why=_why(start, step, wait, took.get(inner.name, 0.0)),
        description=describe(program, start),
    )


def _why(start: Instruction, step: Simulation, wait: Wait, took_us: float) -> str:
    if start.name in step.inline:
        is_sync = start.collective is not None and start.collective.is_sync
        if is_sync or not start.is_start:
            return "XLA runs it synchronously: nothing overlaps with it"
        return "a command buffer captures it, so it is serialised with the kernels"
    if not took_us:
        return ""
    if wait.us >= 0.95 * took_us:
        return "nothing hides it"
    return f"{1 - wait.us / took_us:.0%} of it is hidden"
