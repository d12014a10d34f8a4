"""What an order moved, and one run of the computation that gained most, before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from slipstream.compiler.order import Order
from slipstream.machines.machine import Machine
from slipstream.profile.attribution.launch_sequence import launches_nothing
from slipstream.profile.program import Computation, Program
from slipstream.profile.semantics.names import describe, source
from slipstream.results.scheduling import LayerEvent, LayerTimelines, MovedOperation
from slipstream.scheduling.schedule import SearchedComputation, SearchedProgram
from slipstream.simulate.engine import all_waits, simulation
from slipstream.simulate.recorded import RecordedCosts

COMPUTE = "compute"


def moved_operations(
    program: Program, order: Order, machine: Machine, costs: RecordedCosts | None
) -> tuple[MovedOperation, ...]:
    """Asynchronous operations with more or fewer kernels beside them, by what that changes."""
    changed = order.applied(program)
    waits = [_waits(one, machine, costs) for one in (program, changed)]
    found = []
    for name in order.sequences:
        beside = [_beside(one, one.computations[name]) for one in (program, changed)]
        for start, count in beside[1].items():
            exposed = (waits[0].get(start, 0.0), waits[1].get(start, 0.0))
            if count == beside[0].get(start) and exposed[0] == exposed[1]:
                continue
            one = program.instruction(start)
            found.append(
                MovedOperation(
                    start,
                    describe(program, one),
                    source(program, one),
                    name,
                    program.executions(start) or 1,
                    count - beside[0].get(start, 0),
                    exposed,
                )
            )
    found.sort(key=lambda one: one.exposed_us[1] - one.exposed_us[0])
    return tuple(found)


def _waits(program: Program, machine: Machine, costs: RecordedCosts | None) -> dict[str, float]:
    known, measured_on = (costs.costs, costs.source) if costs is not None else (None, None)
    step = simulation(program, machine, known, source=measured_on)
    return {wait.instruction: wait.us for wait in all_waits(step)}


def _beside(program: Program, computation: Computation) -> Mapping[str, int]:
    """How many kernels are launched between each start and its done."""
    launched = 0
    at: dict[str, int] = {}
    found: dict[str, int] = {}
    for one in computation.instructions:
        partner = program.partner(one.name)
        if one.is_start:
            at[one.name] = launched
        elif one.is_done and partner is not None and partner.name in at:
            found[partner.name] = launched - at[partner.name]
        elif not launches_nothing(one):
            launched += 1
    return found


def layer_timelines(searched: SearchedProgram, program: Program) -> LayerTimelines | None:
    """One turn of the loop whose order gained most; without such a loop, what gained most."""
    gains = {one.name: _gain(program, one) for one in searched.computations}
    gaining = [one for one in searched.computations if gains[one.name] > 0]
    if not gaining:
        return None
    best = max(gaining, key=lambda one: (_is_loop(program, one.name), gains[one.name]))
    streams = searched.streams
    return LayerTimelines(
        computation=best.name,
        what=_what(program, best.name),
        times=_runs(program, best.name),
        xla=_events(program, best, range(len(best.tasks)), streams),
        ours=_events(program, best, best.found.sequence, streams),
    )


def _gain(program: Program, one: SearchedComputation) -> int:
    return (one.xla_ns - one.found.ns) * _runs(program, one.name)


def _runs(program: Program, name: str) -> int:
    """How often a computation runs in a step."""
    first = program.computations[name].instructions[0].name
    return program.executions(first) or 1


def _is_loop(program: Program, name: str) -> bool:
    caller = program.caller(name)
    return caller is not None and caller.opcode == "while"


def _what(program: Program, name: str) -> str:
    caller = program.caller(name)
    if caller is None:
        return "the whole step"
    return f"one turn of {caller.name}" if caller.opcode == "while" else f"one run of {name}"


def _events(
    program: Program, one: SearchedComputation, sequence: Sequence[int], streams: Sequence[str]
) -> tuple[LayerEvent, ...]:
    found = []
    for task, stream, begin, end in one.trial.times(sequence):
        instruction = one.tasks.computation.instructions[task]
        found.append(
            LayerEvent(
                instruction.name,
                describe(program, instruction),
                streams[stream] if stream else COMPUTE,
                begin / 1000,
                end / 1000,
                program.collective_of(instruction) is not None,
            )
        )
    return tuple(found)
