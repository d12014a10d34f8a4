"""The cost of every instruction of a program on a machine, and its basis."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from slipstream.costs.table import CostTable
from slipstream.machines.jitter import slowest
from slipstream.machines.machine import BASES, Estimate, Machine
from slipstream.profile.attribution.launch_sequence import launches_nothing
from slipstream.profile.program import Instruction, Program
from slipstream.profile.semantics.signatures import Signature
from slipstream.simulate.matching import CostMatcher, Model

MOST_SCALE = 2.5
"""largest scale: a model that is further off is wrong about more than the machine's speed"""
LIKELY_SCALE = 0.2
"""typical deviation of a machine's kernels of one kind from the models, as a logarithm"""
MODEL_ERROR = 0.1
"""typical error of the model for one kernel (`held_out_error` in kernels.json)"""
START_US = 2.0
"""uncertainty of a kernel's time due to its start"""
CONTROL_FLOW = ("while", "conditional", "call")


def costing(
    program: Program,
    machine: Machine,
    costs: CostTable | None,
    source: Program | None = None,
) -> Mapping[str, Estimate]:
    """An estimate for each instruction that does work, by name (for a pair, the start's).

    Measured costs come first, then the machine's models. If `source`, the program that the costs
    were measured on, is known, renamed instructions are found too, and models are scaled by their
    error on that program's kernels of the same kind.
    """
    model = _cached_model(machine)
    measured = CostMatcher(program, costs, source, model) if costs is not None else None
    scales = _scales(model, measured)
    instructions = list(working(program))
    # Devices wait for the slowest wherever they communicate.
    late = slowest(machine) if _communicates(program, instructions) else 1.0
    found: dict[str, Estimate] = {}
    for instruction in instructions:
        estimate = measured.estimate(instruction) if measured is not None else None
        if estimate is None:
            estimate = model(program, instruction)
            if scales:
                estimate = _scaled(program, instruction, estimate, scales)
            # A slow GPU is no slower at collectives, but slices of TPUs lose a share of all.
            if estimate.kind != "collective" or machine.kind == "tpu":
                estimate = replace(estimate, us=estimate.us * late)
        elif program.collective_of(instruction) is not None:
            estimate = replace(estimate, kind="collective")
        found[instruction.name] = estimate
    return found


def _communicates(program: Program, instructions: Iterable[Instruction]) -> bool:
    return any(program.collective_of(instruction) is not None for instruction in instructions)


def working(program: Program) -> Iterable[Instruction]:
    """The instructions that have a cost: all that launch work, asynchronous ones as starts.

    Loop conditions have none: with a known trip count they are never evaluated.
    """
    conditions = {i.called[1] for i in program.runnable if i.opcode == "while" and i.called[1:]}
    for instruction in program.scheduled:
        silent = launches_nothing(instruction) or instruction.opcode in CONTROL_FLOW
        if not silent and instruction.computation not in conditions:
            yield instruction


def modelled(
    program: Program, machine: Machine, instruction: Instruction, kernel_time: Model
) -> Estimate:
    """The estimate of the machine's models for one instruction."""
    if machine.kind == "tpu":
        from slipstream.machines.tpu.instructions import tpu_estimate

        return tpu_estimate(machine, program, instruction)
    from slipstream.machines.collectives import collective_time

    collective = program.collective_of(instruction)
    if collective is not None:
        return collective_time(machine, collective, instruction, machine.devices)
    return kernel_time(program, instruction)


def _cached_model(machine: Machine) -> Model:
    """The machine's models, with a cache."""
    from slipstream.machines.kernel_model import KernelTimes

    kernel_time = KernelTimes(machine)
    found: dict[tuple[int, str], Estimate] = {}

    def model(program: Program, instruction: Instruction) -> Estimate:
        key = (id(program), instruction.name)
        if key not in found:
            found[key] = modelled(program, machine, instruction, kernel_time)
        return found[key]

    return model


def _scales(model: Model, measured: CostMatcher | None) -> dict[str, float]:
    """Measured over modelled time by kind of kernel, in the recording."""
    if measured is None or measured.source is None:
        return {}
    found: dict[str, dict[Signature, tuple[float, float]]] = {}
    for instruction, us in measured.all():
        if measured.source.collective_of(instruction) is not None:
            continue
        expected = model(measured.source, instruction)
        if us and expected.us and expected.basis != "default":
            kind = _kind(measured.source, instruction)
            # Identical kernels count once.
            key = measured.works[instruction.name]
            found.setdefault(kind, {})[key] = (math.log(us / expected.us), us)
    return {kind: _scale(list(kernels.values())) for kind, kernels in found.items()}


def _scale(kernels: Sequence[tuple[float, float]]) -> float:
    """One factor from several kernels' (log of measured over modelled, microseconds).

    The more kernels there are, the more they agree and the longer they are, the more the factor
    counts; otherwise the models stay unscaled.
    """
    logs = [log for log, _ in kernels]
    spread = max(statistics.pstdev(logs), MODEL_ERROR)
    weights = [1 / (spread**2 + (START_US / us) ** 2) for _, us in kernels]
    total = sum(weights) + 1 / LIKELY_SCALE**2
    log = sum(w * log for w, log in zip(weights, logs, strict=True)) / total
    return min(max(math.exp(log), 1 / MOST_SCALE), MOST_SCALE)


def _scaled(
    program: Program, instruction: Instruction, estimate: Estimate, scales: Mapping[str, float]
) -> Estimate:
    kind = _kind(program, instruction)
    if program.collective_of(instruction) is not None or kind not in scales:
        return estimate
    why = f"{estimate.why}; × {scales[kind]:.2f}, like the recorded {kind} kernels"
    return replace(estimate, us=estimate.us * scales[kind], basis="calibrated", why=why)


def _kind(program: Program, instruction: Instruction) -> str:
    from slipstream.machines.kernel_features import kernel_features

    return kernel_features(program, instruction).kind


def basis_shares(
    estimates: Mapping[str, Estimate], executions: Mapping[str, int]
) -> dict[str, float]:
    """The share of all instructions' time by basis, the best basis first."""
    times = dict.fromkeys(BASES, 0.0)
    for name, estimate in estimates.items():
        times[estimate.basis] += estimate.us * executions.get(name, 0)
    total = sum(times.values())
    return {basis: us / total for basis, us in times.items() if us} if total else {}
