"""Where a step waits: the worst places, with their source lines."""

from __future__ import annotations

from collections.abc import Sequence

from slipstream.profile.program import Instruction, Program
from slipstream.profile.semantics.categories import category
from slipstream.profile.semantics.names import describe, source
from slipstream.results.prediction import WorstWait
from slipstream.simulate.engine import Simulation, Wait
from slipstream.simulate.streams import communicates

WAITS = 10
"""how many waits a prediction lists"""


def worst_waits(program: Program, step: Simulation) -> tuple[WorstWait, ...]:
    """The longest waits of a step, and what keeps them from being hidden."""
    return tuple(_described(program, step, wait) for wait in _all_waits(step)[:WAITS])


def _all_waits(step: Simulation) -> Sequence[Wait]:
    """Waits at dones, and communication and copies that run on the compute stream itself."""
    found = list(step.waits)
    for name in step.inline:
        count, estimate = step.executions[name], step.estimates.get(name)
        if estimate is not None:
            found.append(Wait(name, estimate.us * count, count))
    return sorted((w for w in found if w.us > 0), key=lambda wait: -wait.us)


def _described(program: Program, step: Simulation, wait: Wait) -> WorstWait:
    start = program.instruction(wait.instruction)
    inner = program.wrapped(start.name) or start
    collective = start.collective or inner.collective
    return WorstWait(
        start.name,
        category(program, start),
        wait.us,
        wait.times,
        collective.bytes if collective is not None else None,
        source(program, inner) or source(program, start),
        _why(start, step, wait, communicates(program, start)),
        describe(program, start),
    )


def _why(start: Instruction, step: Simulation, wait: Wait, talks: bool) -> str:
    estimate = step.estimates.get(start.name)
    total = estimate.us * wait.times if estimate is not None else 0.0
    if start.name in step.inline:
        if talks:
            return "XLA runs it synchronously: nothing is scheduled beside it"
        return "a command buffer captures it, so it runs in line with the kernels"
    if total and wait.us >= 0.95 * total:
        return "nothing to hide it behind"
    return f"{1 - wait.us / total:.0%} of it is hidden" if total else ""
