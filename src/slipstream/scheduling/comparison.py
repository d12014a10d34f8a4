"""XLA's order, XLA's with costs, and ours, of one target: compiled by XLA, simulated, compared."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from slipstream.compiler.compilation import Compilation
from slipstream.compiler.compile import compiler, machine_of
from slipstream.compiler.failures import CompileFailed
from slipstream.compiler.order import Order
from slipstream.compiler.recomputed import TRITON
from slipstream.compiler.session import CompilerSession
from slipstream.compiler.targets import Target
from slipstream.costs.extract import extract_costs
from slipstream.costs.table import CostTable
from slipstream.errors import BadInput, SlipstreamError
from slipstream.machines.machine import Machine
from slipstream.profile.program import Program
from slipstream.results.prediction import Prediction
from slipstream.results.scheduling import PASS, ScheduledStep, Scheduling, TriedBase
from slipstream.scheduling.bases import AS_IT_IS, Base, bases_of
from slipstream.scheduling.bound import program_bound_us
from slipstream.scheduling.explanation import layer_timelines, moved_operations
from slipstream.scheduling.schedule import SECONDS, SearchedProgram, searched
from slipstream.simulate.prediction import predict
from slipstream.simulate.recorded import RecordedCosts
from slipstream.units import format_bytes

MEMORY = 0.9
"""share of a GPU's memory that an order may use, unless XLA's own uses more"""
FITS = 2
"""how often a search is repeated because XLA needs more memory than was counted"""
WORTH = 0.001
"""a program whose bound is not this much below the best step is not searched"""
DISOBEYED = "XLA compiled another order than asked for"
Say = Callable[[str], None]


@dataclass(frozen=True)
class ScheduleSettings:
    """How a schedule is searched."""

    most_bytes: int | None = None
    """of memory on a device"""
    seconds: float = SECONDS
    """of search, for each program"""
    order_only: bool = False
    """search XLA's own program alone"""
    flags: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Scheduled:
    """What was found, and the order itself."""

    result: Scheduling
    order: Order


def schedule(
    target: Program | Target | str | os.PathLike[str],
    on: Machine | str,
    costs: CostTable | None = None,
    *,
    memory: int | None = None,
    flags: Mapping[str, str] | None = None,
    seconds: float = SECONDS,
) -> Order:
    """A better order than XLA's, by simulation; without any sequence if there is none.

    Of a target, also of the programs that other flags make of it, within `memory` bytes of a
    device. Of a program as XLA's scheduler left it, its order alone, in no more memory than XLA's.
    `costs` are measured ones, by instruction.
    """
    where = machine_of(on)
    if isinstance(target, Program):
        return searched(target, where, costs, seconds=seconds).order
    settings = ScheduleSettings(memory, seconds, flags=flags)
    known = RecordedCosts(costs, costs) if costs is not None else None
    return scheduled(target, where, known, settings).order


def scheduled(
    target: Target | str | os.PathLike[str],
    machine: Machine,
    costs: RecordedCosts | None = None,
    settings: ScheduleSettings | None = None,
    say: Say | None = None,
) -> Scheduled:
    """Search an order for a target on a machine, and let XLA compile it."""
    from slipstream.jaxhooks.order_pass import is_supported

    with compiler(target, on=machine, program_only=True, progress=say) as session:
        search = Comparison(session, machine, costs, settings or ScheduleSettings(), say)
        if machine.kind == "tpu" or is_supported():
            return search.by_pass()
        from slipstream.scheduling.shaping import by_costs

        return by_costs(search)


@dataclass(frozen=True)
class Candidate:
    """A program that could be ours."""

    base: Base
    order: Order
    source: Program
    """the program before our order"""
    searched: SearchedProgram | None
    compilation: Compilation
    prediction: Prediction
    is_obeyed: bool

    @property
    def step_us(self) -> float:
        return self.prediction.step_us


class Comparison:
    """One target on one machine: XLA's orders, and the search for a better one."""

    def __init__(
        self,
        session: CompilerSession,
        machine: Machine,
        costs: RecordedCosts | None,
        settings: ScheduleSettings,
        say: Say | None,
    ) -> None:
        if machine.kind == "tpu":
            raise BadInput(
                f"{machine.spec} has TPUs, and XLA:TPU takes no order; expected GPUs: 8xH200"
            )
        self.session = session
        self.machine = machine
        self.costs = costs
        self.settings = settings
        self.say = say or (lambda text: None)
        self.flags = dict(settings.flags or {})
        self.notes: list[str] = []
        self.tried: list[TriedBase] = []
        self.seconds = 0.0

    @property
    def known(self) -> tuple[CostTable | None, Program | None]:
        """Measured costs, and the program that they were measured on."""
        return (None, None) if self.costs is None else (self.costs.costs, self.costs.source)

    # XLA's own orders.

    def xla(self) -> tuple[Compilation, Prediction]:
        """XLA's default order."""
        self.say("XLA's own order")
        found = self.session.compile(flags=self.flags or None)
        if found.flags.get(TRITON) == "False" and TRITON not in self.flags:
            # What the compiler chose for products here counts for all that follow.
            self.flags[TRITON] = "False"
        return found, self.predicted(found)

    def pgle(
        self, plain: Compilation, xla: Prediction
    ) -> tuple[CostTable | None, Compilation, Prediction]:
        """XLA's order with the costs of the step; its default one if it looks up none of them."""
        self.say("XLA's order with costs")
        table = self.costs.for_scheduler if self.costs is not None else None
        if table is None:
            assert xla.timeline is not None
            table = extract_costs(xla.timeline, "typical")
        if not table.is_useful:
            return None, plain, xla
        found = self.session.compile(flags=self.flags or None, costs=table)
        return table, found, self.predicted(found)

    def predicted(self, found: Compilation) -> Prediction:
        costs, source = self.known
        return predict(found.program, self.machine, costs, source=source, compilation=found)

    def bound_us(self, program: Program) -> float:
        costs, source = self.known
        return program_bound_us(program, self.machine, costs, source)

    # Ours.

    def by_pass(self) -> Scheduled:
        first = self.session.scheduled(flags=self.flags or None)
        plain, xla = self.xla()
        if self.flags.get(TRITON) == "False" and TRITON not in (self.settings.flags or {}):
            first = self.session.scheduled(flags=self.flags)
        table, costed, pgle = self.pgle(plain, xla)
        limit = self.limit(xla)
        known = (self.session.scheduled(flags=self.flags or None, costs=table).program,)
        bound = self.bound_us(first.program)
        best: Candidate | None = None
        for base in self._bases(first.program):
            one = self._searched(base, limit, known if base.name == AS_IT_IS else (), best, pgle)
            if one is not None and (best is None or one.step_us < best.step_us):
                best = one
        bounds = [tried.bound_us for tried in self.tried if tried.bound_us is not None]
        own = self.own(((plain, xla, None), (costed, pgle, table)), limit)
        return self._result(first, xla, pgle, own, best, min([bound, *bounds]))

    def limit(self, xla: Prediction) -> int:
        """How much memory an order may need; by default never less than XLA's own."""
        if self.settings.most_bytes is not None:
            return self.settings.most_bytes
        return max(round(MEMORY * self.machine.chip.memory_bytes), xla.memory_bytes or 0)

    def own(
        self, steps: Iterable[tuple[Compilation, Prediction, CostTable | None]], limit: int
    ) -> Candidate | None:
        """The faster of XLA's own orders, of those that fit."""
        base = Base(AS_IT_IS, {})
        made = [self.candidate(base, *one) for one in steps if (one[1].memory_bytes or 0) <= limit]
        if not made:
            self.notes.append(
                f"XLA's own orders need more than {format_bytes(limit)} of memory: ours is the "
                "fastest that was found to fit"
            )
        return min(made, key=lambda one: one.step_us, default=None)

    def _bases(self, program: Program) -> Iterator[Base]:
        for base in bases_of(program):
            if self.settings.order_only and base.name != AS_IT_IS:
                return
            yield base

    def _searched(
        self,
        base: Base,
        limit: int,
        known: Sequence[Program],
        best: Candidate | None,
        pgle: Prediction,
    ) -> Candidate | None:
        """The order of one program; None if it can't win, or XLA refuses or changes it."""
        flags = {**self.flags, **base.flags}
        try:
            self.say(f"{base.name}: compiling")
            source = self.session.scheduled(flags=flags or None)
            bound = self.bound_us(source.program)
            own_us = self.predicted(self.session.compile(flags=flags or None)).step_us
            least = min(pgle.step_us, best.step_us if best is not None else pgle.step_us)
            if base.name != AS_IT_IS and bound > least * (1 - WORTH):
                self._note(base, own_us, None, bound, "no order of it takes less than the best")
                return None
            one = self._fitting(base, source, flags, limit, known)
        except SlipstreamError as error:
            if base.name == AS_IT_IS:
                raise
            self._note(base, None, None, None, str(error))
            return None
        if not one.is_obeyed:
            self._note(base, own_us, None, None, DISOBEYED)
            return None
        self._note(base, own_us, one.step_us, bound)
        return one

    def _note(
        self,
        base: Base,
        xla_us: float | None,
        step_us: float | None,
        bound_us: float | None,
        note: str = "",
    ) -> None:
        self.tried.append(TriedBase(base.name, base.flags, xla_us, step_us, bound_us, note))

    def _fitting(
        self,
        base: Base,
        source: Compilation,
        flags: Mapping[str, str],
        limit: int,
        known: Sequence[Program],
    ) -> Candidate:
        """Search until XLA, too, needs no more memory than the limit."""
        memory = source.memory
        if limit < memory.lasting_bytes:
            raise BadInput(
                f"no order fits in {format_bytes(limit)}: arguments and results alone take "
                f"{format_bytes(memory.lasting_bytes)}, and in XLA's order the program needs "
                f"{format_bytes(memory.peak_bytes)}; allow more (--memory), or make the program "
                "smaller (batch, remat, sharding)"
            )
        spare = limit - memory.peak_bytes
        for is_last in (*[False] * FITS, True):
            self.say(f"{base.name}: searching")
            found = self._search(source.program, spare, known)
            order = replace(found.order, flags=flags)
            made = self.session.compile(flags=flags or None, order=order.sequences)
            obeyed = order.is_obeyed(made.program, source.program)
            fits = made.memory.peak_bytes <= limit
            if fits and (obeyed or spare <= 0 or is_last):
                return Candidate(
                    base, order, source.program, found, made, self.predicted(made), obeyed
                )
            # Near its own limit of memory XLA recomputes values, after our order.
            spare = 0 if fits else spare - (made.memory.peak_bytes - limit)
        raise none_fits(limit, made.memory.peak_bytes)

    def _search(
        self, program: Program, spare_bytes: int, known: Sequence[Program] = ()
    ) -> SearchedProgram:
        costs, source = self.known
        found = searched(
            program,
            self.machine,
            costs,
            source=source,
            known=known,
            spare_bytes=spare_bytes,
            seconds=self.settings.seconds,
        )
        self.seconds += found.seconds
        return found

    # Without the pass: what `shaping` needs.

    def asked(self, program: Program, xla: Prediction) -> Order:
        """The order that XLA is to come near."""
        self.say("searching an order")
        return self._search(program, max(self.limit(xla) - (xla.memory_bytes or 0), 0)).order

    def candidate(
        self, base: Base, made: Compilation, found: Prediction, table: CostTable | None = None
    ) -> Candidate:
        """What XLA's own scheduler makes, with these costs if there are some."""
        program = made.program
        costs = table.of(program.fingerprint) if table is not None else {}
        order = Order(
            {},
            program.fingerprint,
            program.name,
            {**self.flags, **base.flags},
            {name: cost.us for name, cost in costs.items()},
        )
        return Candidate(base, order, program, None, made, found, False)

    def compiled_with(self, base: Base, table: CostTable | None) -> Candidate | None:
        """A program that XLA makes of costs; None if it doesn't, or needs too much memory."""
        self.say(f"{base.name}: compiling with shaped costs")
        flags = {**self.flags, **base.flags}
        try:
            made = self.session.compile(flags=flags or None, costs=table)
        except CompileFailed:
            return None
        if self.settings.most_bytes and made.memory.peak_bytes > self.settings.most_bytes:
            return None
        return self.candidate(base, made, self.predicted(made), table)

    def with_costs(
        self, table: CostTable | None, costed: Compilation, pgle: Prediction
    ) -> list[Candidate]:
        """The programs that other flags give with these costs, the fastest first."""
        made = [self.candidate(Base(AS_IT_IS, {}), costed, pgle, table)]
        for base in self._bases(costed.program):
            if base.name != AS_IT_IS:
                one = self.compiled_with(base, table)
                made += [one] if one is not None else []
        made.sort(key=lambda one: one.step_us)
        self.tried += [TriedBase(one.base.name, one.base.flags, one.step_us) for one in made]
        return made

    def predicted_order(self, program: Program) -> float:
        costs, source = self.known
        return predict(program, self.machine, costs, source=source).step_us

    # The result.

    def result_of(
        self,
        first: Compilation,
        xla: Prediction,
        pgle: Prediction,
        best: Candidate,
        bound_us: float,
    ) -> Scheduled:
        """With the candidate as ours, whatever it is."""
        facts = self._facts(
            first, xla, pgle, best.prediction, bound_us, best.base.name, best.base.flags
        )
        return Scheduled(facts, best.order)

    def _result(
        self,
        first: Compilation,
        xla: Prediction,
        pgle: Prediction,
        own: Candidate | None,
        best: Candidate | None,
        bound_us: float,
    ) -> Scheduled:
        if own is not None and (best is None or best.step_us >= own.step_us):
            what = "XLA's order with costs" if own.order.costs else "XLA's own order"
            self.notes.append(f"no order was found that beats {what}: it stays")
            return self.result_of(first, xla, pgle, own, bound_us)
        if best is None:
            raise none_fits(self.limit(xla), xla.memory_bytes or 0)
        result = replace(
            self._facts(
                first, xla, pgle, best.prediction, bound_us, best.base.name, best.base.flags
            ),
            is_obeyed=best.is_obeyed,
            moved=moved_operations(best.source, best.order, self.machine, self.costs),
            layer=layer_timelines(best.searched, best.source) if best.searched else None,
        )
        return Scheduled(result, best.order)

    def _facts(
        self,
        first: Compilation,
        xla: Prediction,
        pgle: Prediction,
        ours: Prediction,
        bound_us: float,
        base: str,
        flags: Mapping[str, str],
    ) -> Scheduling:
        return Scheduling(
            machine=self.machine.spec,
            program=first.program.name,
            fingerprint=first.program.fingerprint,
            xla=figures(xla),
            pgle=figures(pgle),
            ours=figures(ours),
            bound_us=bound_us,
            how=PASS,
            is_obeyed=True,
            base=base,
            flags=dict(flags),
            bases=tuple(self.tried),
            seconds=self.seconds,
            notes=tuple(self.notes),
            versions=dict(first.versions),
        )


def none_fits(limit: int, needed: int) -> CompileFailed:
    return CompileFailed(
        f"in every order that was found, XLA needs more than {format_bytes(limit)} of memory "
        f"(the last one {format_bytes(needed)}): allow more (--memory), or make the program "
        "smaller",
        "memory",
    )


def figures(one: Prediction) -> ScheduledStep:
    return ScheduledStep(
        one.step_us, one.exposed_communication_us, one.exposed_copy_us, one.memory_bytes
    )
