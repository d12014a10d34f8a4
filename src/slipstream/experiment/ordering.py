"""An order of our own for a program that runs: searched beside the job, the same on all ranks.

Every rank compiles the program once more to see XLA's schedule, since ranks autotune together; the
leader alone searches, and its order goes to all. A failure costs this one arm, nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from slipstream.analyses.network.flows import machine_of
from slipstream.compiler.order import Order
from slipstream.consensus.consensus import Consensus, Message
from slipstream.errors import Missing, SlipstreamError
from slipstream.experiment.variants import Variant
from slipstream.jaxhooks.compiled_program import CompiledProgram
from slipstream.jaxhooks.order_pass import OrderPass, is_supported, registered, why_not
from slipstream.profile.program import Program
from slipstream.scheduling.schedule import searched
from slipstream.simulate.recorded import costs_of
from slipstream.sources.hlo.reader import program_from_proto

SECONDS = 10.0
"""of search, beside the job"""


class NoOrder(SlipstreamError):
    """There is no order for a program, and why."""


def agreed_order(
    compiled: CompiledProgram,
    variant: Variant,
    costs: bytes | None,
    profile: Path | None,
    consensus: Consensus,
    spare_bytes: int | None,
) -> Order:
    """The order that all ranks compile with; NoOrder if there is none."""
    if compiled.platform not in ("gpu", "cuda", "rocm"):
        raise NoOrder(f"an order is for GPUs, and this program runs on {compiled.platform}")
    if not is_supported():
        raise NoOrder(why_not())
    if profile is None:
        raise NoOrder("an order needs a profile of the step, and there is none")
    program = scheduled_program(compiled, variant.flags, costs)
    if consensus.is_alone:
        return _searched(program, profile, spare_bytes)
    proposal = consensus.propose(
        lambda: _message(_searched(program, profile, spare_bytes)), "no order was found"
    )
    decided = consensus.decide_in_background("order", proposal)
    if decided["do"] == "stop":
        raise NoOrder(str(decided["why"]))
    sequences = {name: tuple(one) for name, one in decided["sequences"].items()}
    return Order(sequences, decided["fingerprint"], program.name)


def scheduled_program(
    compiled: CompiledProgram, flags: Mapping[str, str], costs: bytes | None
) -> Program:
    """The program as XLA's scheduler leaves it."""
    try:
        with registered(OrderPass()) as seen:
            compiled.recompile(flags, costs)
    except Missing as problem:
        raise NoOrder(str(problem)) from None
    if seen.scheduled is None:
        raise NoOrder("XLA did not show its schedule")
    return program_from_proto(seen.scheduled, source=compiled.name)


def _message(order: Order) -> Message:
    return {
        "do": "compile",
        "sequences": {name: list(one) for name, one in order.sequences.items()},
        "fingerprint": order.fingerprint,
    }


def _searched(program: Program, profile: Path, spare_bytes: int | None) -> Order:
    from slipstream.sources.load import load

    recording = load(profile)
    machine = machine_of(recording)
    if machine is None:
        raise NoOrder("the recording doesn't say which GPU it is from")
    recorded = costs_of(recording)
    found = searched(
        program,
        machine,
        recorded.costs,
        source=recorded.source,
        spare_bytes=spare_bytes or 0,
        seconds=SECONDS,
    )
    if not found.order.sequences:
        raise NoOrder("no order was found that is faster than XLA's, by the measured costs")
    return found.order
