"""An order of our own for a program that runs: searched beside the job, the same on all ranks.

Every rank compiles the program once more to see XLA's schedule, since ranks autotune together; the
leader alone searches, and its order goes to all. A failure costs this one arm, nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from slipstream.analyses.network.flows import machine_of
from slipstream.compiler.order import Order
from slipstream.consensus.consensus import Consensus, Message
from slipstream.errors import Missing, SlipstreamError
from slipstream.experiment.variants import Variant, read_program
from slipstream.jaxhooks.compiled_program import XLA_ERRORS, CompiledProgram
from slipstream.jaxhooks.jax_types import first_line
from slipstream.jaxhooks.order_pass import OrderPass, is_supported, registered, why_not
from slipstream.profile.program import Program
from slipstream.scheduling.schedule import searched
from slipstream.simulate.recorded import costs_of
from slipstream.sources.hlo.reader import program_from_proto

SECONDS = 10.0
"""of search, beside the job"""


FAILURES = (SlipstreamError, *XLA_ERRORS)


class NoOrder(SlipstreamError):
    """There is no order for a program, and why."""


class NoAgreement(Exception):
    """The ranks did not decide on an order in time: this one leaves the comparison."""


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

    def found() -> Order:
        if profile is None:
            raise NoOrder("an order needs a profile of the step, and there is none")
        return _searched(own(), profile, spare_bytes)

    own = _Once(lambda: scheduled_program(compiled, variant.flags, costs))
    if consensus.is_alone:
        return found()
    # Ranks autotune together: each compiles, also where another fails.
    with suppress(*FAILURES):
        own()
    decided = consensus.decide_in_background(
        f"order, {variant.name}", consensus.propose(lambda: _message(found), "no order was found")
    )
    if decided["do"] == "stop":
        raise NoAgreement(str(decided["why"]))
    if "why" in decided:
        raise NoOrder(str(decided["why"]))
    sequences = {name: tuple(one) for name, one in decided["sequences"].items()}
    order = Order(sequences, decided["fingerprint"], decided["program"])
    order.check(own())
    return order


def scheduled_program(
    compiled: CompiledProgram, flags: Mapping[str, str], costs: bytes | None
) -> Program:
    """The program as XLA's scheduler leaves it."""
    name = read_program(compiled.original, compiled.name).name
    try:
        with registered(OrderPass(program=name)) as seen:
            compiled.recompile(flags, costs)
    except Missing as problem:
        raise NoOrder(str(problem)) from None
    if seen.scheduled is None:
        raise NoOrder("XLA did not show its schedule")
    return program_from_proto(seen.scheduled, source=compiled.name)


class _Once:
    """A program that is made once; a failure to make it is raised each time."""

    def __init__(self, make: Callable[[], Program]) -> None:
        self._make = make
        self._program: Program | None = None
        self._problem: Exception | None = None

    def __call__(self) -> Program:
        if self._problem is not None:
            raise self._problem
        if self._program is None:
            try:
                self._program = self._make()
            except FAILURES as problem:
                self._problem = problem
                raise
        return self._program


def _message(find: Callable[[], Order]) -> Message:
    """To compile in an order, or why there is none: that ends one arm, not the comparison."""
    try:
        order = find()
    except FAILURES as problem:
        return {"do": "compile", "why": first_line(problem)}
    return {
        "do": "compile",
        "sequences": {name: list(one) for name, one in order.sequences.items()},
        "fingerprint": order.fingerprint,
        "program": order.program,
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
