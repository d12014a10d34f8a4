"""What every instruction of a program costs on a machine, and what that figure rests on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from slipstream.costs.table import CostTable
from slipstream.machines.machine import BASES, Estimate, Machine
from slipstream.profile.launches import is_silent
from slipstream.profile.program import Collective, Instruction, Program
from slipstream.simulate.matching import Measured

MOST_SCALE = 2.5
"""a model that is further off is wrong about something else than the machine's speed"""
CONTROL_FLOW = ("while", "conditional", "call")


def costing(
    program: Program,
    machine: Machine,
    costs: CostTable | None,
    source: Program | None = None,
) -> Mapping[str, Estimate]:
    """An estimate for each instruction that does something, by its name (a start's, of a pair).

    Measured costs come first, then the machine's models. `source` is the program that the costs
    were measured on, where it is known: then instructions that got other names are found too, and
    models are scaled by how far they are off on that program's kernels of the same kind.
    """
    measured = Measured(program, costs, source) if costs is not None else None
    scales = _scales(machine, measured)
    found: dict[str, Estimate] = {}
    for instruction in working(program):
        estimate = measured.estimate(instruction) if measured is not None else None
        if estimate is None:
            estimate = modelled(program, machine, instruction)
            if scales:
                estimate = _scaled(program, instruction, estimate, scales)
        elif _collective(program, instruction) is not None:
            estimate = replace(estimate, kind="collective")
        found[instruction.name] = estimate
    return found


def working(program: Program) -> Iterable[Instruction]:
    """The instructions that have a cost: all that launch work, asynchronous ones as starts.

    The conditions of loops have none: where the trip count is known nobody evaluates them.
    """
    conditions = {i.called[1] for i in program.runnable if i.opcode == "while" and i.called[1:]}
    for instruction in program.scheduled:
        silent = is_silent(instruction) or instruction.opcode in CONTROL_FLOW
        if not silent and instruction.computation not in conditions:
            yield instruction


def modelled(program: Program, machine: Machine, instruction: Instruction) -> Estimate:
    """What the machine's models say of one instruction."""
    from slipstream.machines.collectives import collective_time
    from slipstream.machines.kernels import kernel_time

    collective = _collective(program, instruction)
    if collective is not None:
        return collective_time(machine, collective, instruction, machine.devices)
    return kernel_time(machine, program, instruction)


def _scales(machine: Machine, measured: Measured | None) -> dict[str, float]:
    """How much longer kernels of each kind took in the recording than the models say."""
    if measured is None or measured.source is None:
        return {}
    times: dict[str, list[float]] = {}
    for instruction, us in measured.all():
        if _collective(measured.source, instruction) is not None:
            continue
        expected = modelled(measured.source, machine, instruction)
        count = measured.source.executions(instruction.name) or 1
        if us and expected.us and expected.basis != "default":
            sums = times.setdefault(_kind(measured.source, instruction), [0.0, 0.0])
            sums[0] += us * count
            sums[1] += expected.us * count
    return {
        kind: min(max(real / expected, 1 / MOST_SCALE), MOST_SCALE)
        for kind, (real, expected) in times.items()
    }


def _scaled(
    program: Program, instruction: Instruction, estimate: Estimate, scales: Mapping[str, float]
) -> Estimate:
    kind = _kind(program, instruction)
    if _collective(program, instruction) is not None or kind not in scales:
        return estimate
    why = f"{estimate.why}; × {scales[kind]:.2f}, as {kind} kernels of the recording"
    return replace(estimate, us=estimate.us * scales[kind], basis="calibrated", why=why)


def _kind(program: Program, instruction: Instruction) -> str:
    from slipstream.machines.kernel import kernel

    return kernel(program, instruction).kind


def basis_shares(
    estimates: Mapping[str, Estimate], executions: Mapping[str, int]
) -> dict[str, float]:
    """The share of all instructions' time that rests on each basis; the best basis first."""
    times = dict.fromkeys(BASES, 0.0)
    for name, estimate in estimates.items():
        times[estimate.basis] += estimate.us * executions.get(name, 0)
    total = sum(times.values())
    return {basis: us / total for basis, us in times.items() if us} if total else {}


def _collective(program: Program, instruction: Instruction) -> Collective | None:
    if instruction.collective is not None:
        return instruction.collective
    inner = program.wrapped(instruction.name) if instruction.is_start else None
    return inner.collective if inner is not None else None
