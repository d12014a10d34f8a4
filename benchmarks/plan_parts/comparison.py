"""Two plans of the same combinations, made in different places: do they say the same?"""

from __future__ import annotations

from collections.abc import Iterator

from slipstream.outputs.terminal.compiled.plan import choices_text
from slipstream.results.planning import CANNOT_WIN, SIMULATED, Candidate, MachinePlan, Plan


def compared(here: Plan, there: Plan) -> Iterator[str]:
    """A line for each machine, and one for each difference."""
    for one, other in zip(here.machines, there.machines, strict=True):
        yield from _compared(one, other)


def _compared(here: MachinePlan, there: MachinePlan) -> Iterator[str]:
    known, found = _by_choices(here), _by_choices(there)
    both = [(known[text], found[text]) for text in known if text in found]
    simulated = [pair for pair in both if all(one.basis == SIMULATED for one in pair)]
    differ = [pair for pair in both if _differ(*pair)]
    best = [choices_text(one.best.choices) if one.best else "none" for one in (here, there)]
    yield (
        f"  {here.machine}: {len(both)} of {len(known)} combinations are in both plans, "
        f"{len(simulated)} simulated in both; {len(differ)} have other figures; "
        f"the recommendation is {'the same' if best[0] == best[1] else 'another: ' + best[1]}"
    )
    for one, other in differ:
        yield f"    {choices_text(one.choices)}: {_figures(one)} here, {_figures(other)} there"


def _by_choices(plan: MachinePlan) -> dict[str, Candidate]:
    return {choices_text(one.choices): one for one in plan.candidates}


def _differ(one: Candidate, other: Candidate) -> bool:
    """What bounds settle depends on what is known by then, so on which compile ends first."""
    if one.basis == other.basis == SIMULATED:
        return _figures(one) != _figures(other)
    return one.status != other.status and CANNOT_WIN not in (one.status, other.status)


def _figures(candidate: Candidate) -> tuple[str, float | None, int | None]:
    return candidate.status, candidate.step_us, candidate.memory_bytes
