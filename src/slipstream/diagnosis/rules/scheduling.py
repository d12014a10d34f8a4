"""Communication that the schedule could hide: the scheduler is off, or knows too little.

scheduler off    all-gather ██████ matmul ████████      one after the other
on               all-gather ██████
                 matmul     ████████                    beside each other
"""

from __future__ import annotations

from collections.abc import Iterator

from slipstream.analyses.overlap import Overlapped
from slipstream.costs.coverage import Coverage, check_profile, check_program
from slipstream.costs.scheduler_names import lookup_name
from slipstream.costs.table import CostTable
from slipstream.diagnosis.evidence import Evidence
from slipstream.diagnosis.rule import MOST_EXHIBITS, Rule, RuleResults
from slipstream.diagnosis.rules.host_copies import captured
from slipstream.flags.lint.conflicts import LHS, PGLE_PATH, SOL
from slipstream.results.diagnosis import Abstention, Exhibit, Finding, Gain, Remedy
from slipstream.units import format_time

SCHEDULER, COSTS = "scheduler-off", "pgle-unused"
MOSTLY = 0.5
"""share of the exposed communication that runs synchronously where a scheduler did not try"""
EXPOSED = 0.05
"""share of the step that must be exposed before better costs are worth their while"""
FEWEST = 2
COVERED = 0.9
"""share of the device time that costs must have"""
OFF = 0.5
"""costs that are further off than this, in the mean, are of another program or machine"""
XLA = "gpu_hlo_schedule.cc of github.com/openxla/xla: IsLHSEnabled"
GUIDE = "https://docs.jax.dev/en/latest/gpu_performance_tips.html"


def check_scheduler(evidence: Evidence) -> RuleResults:
    """Collectives without any compute between their start and their end."""
    if evidence.program is None:
        return
    exposed = evidence.step.exposed_communication_us
    if exposed < evidence.noticeable_us:
        return
    sync = [op for op in evidence.overlap.collectives if _is_sync(evidence, op)]
    total = sum(op.exposed_us for op in sync)
    is_off = evidence.flags.is_off(LHS) and evidence.flags.is_off(SOL) is not False
    if not is_off and (total < MOSTLY * exposed or len(sync) < FEWEST):
        return
    most = _most_us(evidence, total if not is_off else exposed)
    if most < evidence.noticeable_us:
        return
    count = len(evidence.overlap.collectives)
    said = "the run's settings say so" if is_off else "the settings of the run are not known"
    change = evidence.flag(LHS, "true", "lets XLA start collectives early and wait late")
    yield Finding(
        SCHEDULER,
        "collectives run synchronously: the latency-hiding scheduler seems off"
        if not is_off
        else "the latency-hiding scheduler is off",
        f"{len(sync)} of {count} collectives have no compute between their start and their end; "
        f"they are exposed for {format_time(total * 1e6)} of the step ({said}).",
        _bound(most, "what overlap could hide at most: no more than is exposed, than there is "
                     "compute, or than the program's dependencies allow"),
        (change,) if change is not None else (),
        _exhibits(sync or list(evidence.overlap.collectives)),
        "slipstream slack PATH",
        (XLA,),
    )  # fmt: skip


def check_costs(evidence: Evidence) -> RuleResults:
    """Costs that don't fit, or none where much is exposed."""
    if evidence.program is None:
        return
    if evidence.given_costs is not None:
        yield from _stale(evidence, evidence.given_costs)
        return
    asides = _hideable(evidence)
    exposed = sum(op.exposed_us for op in asides)
    if exposed < EXPOSED * evidence.step.wall_us:
        return
    if any(isinstance(one, Finding) for one in check_scheduler(evidence)):
        return  # first things first: costs are for a scheduler that is on
    if evidence.flags.is_known and evidence.flags.value(PGLE_PATH):
        yield Abstention(COSTS, "the run had a PGLE profile; say which, to check it: --costs PATH")
        return
    most = _most_us(evidence, exposed)
    if most < evidence.noticeable_us:
        return
    fallback = check_program(CostTable(()), evidence.program, evidence.model).fallback
    yield Finding(
        COSTS,
        "much is exposed, and the scheduler may have had no measured costs",
        f"{format_time(exposed * 1e6)} of collectives and copies that run beside compute are "
        f"exposed. Without measured costs the scheduler goes by {fallback}. Whether the run had "
        "any is not recorded.",
        _bound(most, "what a perfect schedule could hide at most; PGLE moves towards it, how far "
                     "is only known by trying"),
        _pgle(evidence),
        _exhibits(asides),
        "slipstream slack PATH",
        (GUIDE,),
    )  # fmt: skip


def _stale(evidence: Evidence, costs: CostTable) -> RuleResults:
    program = evidence.program
    assert program is not None
    coverage = check_profile(costs, evidence.profile)
    off = _off(evidence, costs)
    if coverage.share >= COVERED and not coverage.stale and off < OFF:
        return
    asides = _hideable(evidence)
    most = _most_us(evidence, sum(op.exposed_us for op in asides))
    yield Finding(
        "pgle-stale",
        "the PGLE profile does not fit the program",
        " ".join(_misfits(coverage, off)),
        _bound(most, "what a perfect schedule could hide at most")
        if most >= evidence.noticeable_us
        else Gain(None, 0.0, None, "unknown", "little is exposed that a schedule could hide"),
        _pgle(evidence),
        _exhibits(asides),
        "slipstream costs check COSTS --against PATH",
        (GUIDE,),
    )


def _misfits(coverage: Coverage, off: float) -> Iterator[str]:
    said = f"The scheduler finds costs for {coverage.share:.0%} of the device time"
    missing = ", ".join(one.name for one in coverage.missing[:3])
    yield f"{said}, and none for {missing}." if missing else f"{said}."
    if off >= OFF:
        yield f"Those that it finds are {off:.0%} off what was recorded, in the mean."
    if coverage.stale:
        yield f"They are of something else: {'; '.join(coverage.stale)}."
    if coverage.missing:
        yield f"For what is missing it takes {coverage.fallback}."


def _off(evidence: Evidence, costs: CostTable) -> float:
    """How far costs are from what was recorded, as a share of the recorded time."""
    program = evidence.program
    assert program is not None
    known = costs.of(program.fingerprint)
    total = wrong = 0.0
    for name, estimate in evidence.estimates.items():
        cost = known.get(name) or known.get(lookup_name(program, name))
        if cost is not None and estimate.basis == "measured":
            times = program.executions(name) or 1
            total += estimate.us * times
            wrong += abs(cost.us - estimate.us) * times
    return wrong / total if total else 0.0


def _pgle(evidence: Evidence) -> tuple[Remedy, ...]:
    changes = [
        Remedy("command", "slipstream costs extract PATH -o costs.pb", "makes them of this profile")
    ]
    flag = evidence.flag(PGLE_PATH, "costs.pb", "gives them to the scheduler of the next run")
    if flag is not None:
        changes.append(flag)
    changes.append(
        Remedy("command", "slipstream run -- python train.py", "does both, and proves the gain")
    )
    return tuple(changes)


def _hideable(evidence: Evidence) -> list[Overlapped]:
    """What runs, or could run, beside compute; what graphs capture is another rule's."""
    inline = {start.name for start in captured(evidence)}
    found = []
    for op in evidence.overlap.ops:
        start = evidence.start(op.instruction)
        if start is None or start.name in inline or not op.exposed_us:
            continue
        if start.is_start or start.collective is not None:
            found.append(op)
    return found


def _most_us(evidence: Evidence, exposed_us: float) -> float:
    """What overlap could hide: no more than is exposed, than computes, than dependencies allow."""
    most = min(exposed_us, evidence.step.compute_us)
    if evidence.simulation_doubt:
        return most
    return max(0.0, min(most, evidence.simulated().profile_us - evidence.least_us))


def _bound(most_us: float, why: str) -> Gain:
    return Gain(None, 0.0, most_us, "bound", why)


def _is_sync(evidence: Evidence, op: Overlapped) -> bool:
    start = evidence.start(op.instruction)
    if start is None or start.collective is None:
        return False
    return start.collective.is_sync or not start.is_start


def _exhibits(ops: list[Overlapped]) -> tuple[Exhibit, ...]:
    shown = sorted(ops, key=lambda op: -op.exposed_us)[:MOST_EXHIBITS]
    return tuple(
        Exhibit(op.instruction, op.exposed_us, 0, op.source, op.description, "exposed")
        for op in shown
        if op.exposed_us > 0
    )


SCHEDULER_RULE = Rule(SCHEDULER, "Is the latency-hiding scheduler off?", check_scheduler)
COSTS_RULE = Rule(COSTS, "Are PGLE costs stale, or missing where much is exposed?", check_costs)
