"""Where XLA takes no order: costs that bring its own scheduler near ours.

XLA's scheduler keeps an operation in flight for as long as its cost says. A cost that is too large
makes it start earlier; of several such tables, the one whose compiled program is fastest in the
simulator is kept. How near it comes is the share of starts and kernels that run in the order asked
for, pair by pair.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import replace

from slipstream.compiler.order import Order
from slipstream.costs.scheduler_names import lookup_name
from slipstream.costs.table import CostTable
from slipstream.errors import BadInput
from slipstream.profile.attribution.launch_sequence import launches_nothing
from slipstream.profile.program import Program
from slipstream.results.scheduling import COSTS
from slipstream.scheduling.bases import AS_IT_IS
from slipstream.scheduling.comparison import Comparison, Scheduled, none_fits
from slipstream.scheduling.explanation import moved_operations

FACTORS = (1.5, 2.0, 4.0)
BASES = 2
"""how many of the programs that other flags give are searched: the fastest with plain costs"""


def by_costs(search: Comparison) -> Scheduled:
    """The fastest program that XLA makes of costs, as they are or shaped."""
    first, xla = search.xla()
    table, costed, pgle = search.pgle(first, xla)
    limit = search.limit(xla)
    own = search.own(((first, xla, None), (costed, pgle, table)), limit)
    bases = search.with_costs(table, costed, pgle)[:BASES]
    found = [one for one in bases if one.base.name != AS_IT_IS]
    found += [own] if own is not None else []
    orders: dict[str, Order] = {}
    for one in bases:
        if table is None:  # XLA looks up none of the costs
            break
        order = orders[one.base.name] = search.asked(one.source, xla)
        earlier = [
            moved.instruction
            for moved in moved_operations(one.source, order, search.machine, search.costs)
            if moved.kernels_earlier > 0
        ]
        made = (
            search.compiled_with(one.base, shaped)
            for shaped in shaped_tables(table, one.source, earlier)
        )
        found += [shaped for shaped in made if shaped is not None]
    if not found:
        raise none_fits(limit, xla.memory_bytes or 0)
    best = min(found, key=lambda one: one.step_us)
    sources = (first.program, costed.program, best.source)
    bound_us = min(search.bound_us(one) for one in sources)
    result = search.result_of(first, xla, pgle, best, bound_us)
    facts = replace(result.result, how=COSTS, is_obeyed=False)
    order = orders.get(best.base.name) or search.asked(best.source, xla)
    with suppress(BadInput):  # programs whose collectives XLA made synchronous in other places
        wanted = order.applied(best.source)
        facts = replace(
            facts,
            nearness=nearness(wanted, best.compilation.program),
            asked_us=search.predicted_order(wanted),
        )
    return replace(result, result=facts)


def shaped_tables(
    table: CostTable, program: Program, earlier: Collection[str]
) -> Iterator[CostTable]:
    """Tables with larger costs: of all that communicates, or of what is to start earlier."""
    names = {lookup_name(program, name) for name in earlier}
    choices: tuple[Callable[[str, bool], bool], ...] = (
        lambda name, is_communication: is_communication,
        lambda name, is_communication: name in names,
    )
    for chosen in choices[: 2 if names else 1]:
        for factor in FACTORS:
            yield _scaled(table, chosen, factor)


def _scaled(table: CostTable, chosen: Callable[[str, bool], bool], factor: float) -> CostTable:
    programs = []
    for one in table.programs:
        costs = {
            name: replace(cost, us=cost.us * factor)
            if chosen(name, cost.is_communication)
            else cost
            for name, cost in one.costs.items()
        }
        programs.append(replace(one, costs=costs))
    return replace(table, programs=tuple(programs))


def nearness(asked: Program, compiled: Program) -> float | None:
    """The share of pairs of a start and a kernel that run in the order asked for."""
    same = pairs = 0
    for name, computation in asked.computations.items():
        made = compiled.computations.get(name)
        if made is None:
            continue
        wanted = [one for one in computation.instructions if not launches_nothing(one)]
        at = {one.name: place for place, one in enumerate(made.instructions)}
        wanted = [one for one in wanted if one.name in at]
        starts = [(place, one.name) for place, one in enumerate(wanted) if one.is_start]
        for place, start in starts:
            for other, one in enumerate(wanted):
                if not one.is_start:
                    pairs += 1
                    same += (at[start] < at[one.name]) == (place < other)
    return same / pairs if pairs else None
