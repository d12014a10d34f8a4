"""Communication that a better schedule could hide: the scheduler is off, or lacks costs.

scheduler off    all-gather ██████ matmul ████████      one after the other
on               all-gather ██████
                 matmul     ████████                    overlapped
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
"""synchronous share of the exposed communication from which on the scheduler seems off"""
EXPOSED = 0.05
"""minimum exposed share of the step for better costs to matter"""
FEWEST = 2
COVERED = 0.9
"""minimum share of the device time that costs must cover"""
OFF = 0.5
"""costs with a larger mean error belong to another program or machine"""
XLA = "gpu_hlo_schedule.cc of github.com/openxla/xla: IsLHSEnabled"
GUIDE = "https://docs.jax.dev/en/latest/gpu_performance_tips.html"


def check_scheduler(evidence: Evidence) -> RuleResults:
    """Collectives with no compute between their start and their done."""
    if evidence.program is None:
        return
    exposed = evidence.step.exposed_communication_us
    if exposed < evidence.noticeable_us:
        return
    sync = [op for op in evidence.overlap.collectives if _is_sync(evidence, op)]
    total = sum(op.exposed_us for op in sync)
    is_off = bool(evidence.flags.is_off(LHS)) and evidence.flags.is_off(SOL) is not False
    if not is_off and (total < MOSTLY * exposed or len(sync) < FEWEST):
        return
    most = _most_us(evidence, total if not is_off else exposed)
    if most < evidence.noticeable_us:
        return
    title, basis = _scheduler_state(evidence, is_off)
    count = len(evidence.overlap.collectives)
    seen = (
        f"{len(sync)} of {count} collectives have no compute between their start and their done; "
        f"they are exposed for {format_time(total * 1e6)} of the step"
        if sync
        else f"{count} collectives are exposed for {format_time(exposed * 1e6)} of the step"
    )
    yield Finding(
        SCHEDULER,
        title=title,
        evidence=f"{seen} ({basis}).",
        gain=_bound(
            most,
            "the most that overlap could hide: limited by the exposed time, the compute "
            "and the program's dependencies",
        ),
        changes=_scheduler_changes(evidence, is_off),
        exhibits=_exhibits(sync or list(evidence.overlap.collectives)),
        see="slipstream slack PATH",
        sources=(XLA,),
    )


def _scheduler_state(evidence: Evidence, is_off: bool) -> tuple[str, str]:
    """(title, what it is based on): what the settings say is not contradicted."""
    if is_off:
        return "the latency-hiding scheduler is off", "according to the run's settings"
    if evidence.flags.is_known:
        said = "the run's settings turn the latency-hiding scheduler on"
        return "collectives run synchronously", said
    title = "collectives run synchronously: the latency-hiding scheduler seems off"
    return title, "the run's settings are unknown"


def _scheduler_changes(evidence: Evidence, is_off: bool) -> tuple[Remedy, ...]:
    if evidence.flags.is_known and not is_off:
        note = "shows what each of them needs, and what could run at the same time"
        return (Remedy("command", "slipstream slack PATH", note),)
    change = evidence.flag(LHS, "true", "lets XLA start collectives early and wait for them late")
    return (change,) if change is not None else ()


def check_costs(evidence: Evidence) -> RuleResults:
    """Costs that don't fit the program, or no costs although much is exposed."""
    if evidence.program is None:
        return
    if evidence.given_costs is not None:
        yield from _stale(evidence, evidence.given_costs)
        return
    hideable = _hideable(evidence)
    exposed = sum(op.exposed_us for op in hideable)
    if exposed < EXPOSED * evidence.step.wall_us:
        return
    if any(isinstance(one, Finding) for one in check_scheduler(evidence)):
        return  # costs only help a scheduler that is on
    if evidence.flags.is_known and evidence.flags.value(PGLE_PATH):
        yield Abstention(
            COSTS, "the run had a PGLE profile; name it to have it checked: --costs PATH"
        )
        return
    most = _most_us(evidence, exposed)
    if most < evidence.noticeable_us:
        return
    fallback = check_program(CostTable(()), evidence.program, evidence.model).fallback
    yield Finding(
        COSTS,
        title="much is exposed, and the scheduler may have lacked measured costs",
        evidence=f"{format_time(exposed * 1e6)} of asynchronous collectives and copies are "
        f"exposed. Without measured costs the scheduler uses {fallback}. The profile doesn't "
        "record whether the run had any.",
        gain=_bound(
            most,
            "the most that a perfect schedule could hide; only a run shows how close PGLE gets",
        ),
        changes=_pgle(evidence),
        exhibits=_exhibits(hideable),
        see="slipstream slack PATH",
        sources=(GUIDE,),
    )


def _stale(evidence: Evidence, costs: CostTable) -> RuleResults:
    program = evidence.program
    assert program is not None
    coverage = check_profile(costs, evidence.profile)
    off = _mean_error(evidence, costs)
    if coverage.share >= COVERED and not coverage.stale and off < OFF:
        return
    hideable = _hideable(evidence)
    most = _most_us(evidence, sum(op.exposed_us for op in hideable))
    yield Finding(
        "pgle-stale",
        title="the PGLE profile does not fit the program",
        evidence=" ".join(_misfits(coverage, off)),
        gain=_bound(most, "the most that a perfect schedule could hide")
        if most >= evidence.noticeable_us
        else Gain(
            us=None,
            low_us=0.0,
            high_us=None,
            basis="unknown",
            why="little of what is exposed could be hidden by a schedule",
        ),
        changes=_pgle(evidence),
        exhibits=_exhibits(hideable),
        see="slipstream costs check COSTS --against PATH",
        sources=(GUIDE,),
    )


def _misfits(coverage: Coverage, off: float) -> Iterator[str]:
    covered = f"The scheduler finds costs for {coverage.share:.0%} of the device time"
    missing = ", ".join(one.name for one in coverage.missing[:3])
    yield f"{covered}, and none for {missing}." if missing else f"{covered}."
    if off >= OFF:
        yield f"The costs that it finds differ from the recording by {off:.0%} on average."
    if coverage.stale:
        yield f"They belong to another program: {'; '.join(coverage.stale)}."
    if coverage.missing:
        yield f"For missing costs it uses {coverage.fallback}."


def _mean_error(evidence: Evidence, costs: CostTable) -> float:
    """The mean error of the costs, as a share of the recorded time."""
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
        Remedy(
            "command",
            "slipstream costs extract PATH -o costs.pb",
            "extracts costs from this profile",
        )
    ]
    flag = evidence.flag(PGLE_PATH, "costs.pb", "passes them to the scheduler")
    if flag is not None:
        changes.append(flag)
    changes.append(
        Remedy("command", "slipstream run -- python train.py", "does both and measures the gain")
    )
    return tuple(changes)


def _hideable(evidence: Evidence) -> list[Overlapped]:
    """Exposed operations that could overlap with compute; `host_copies` covers captured ones."""
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
    """The most that overlap could hide, given the exposed time, the compute and dependencies."""
    most = min(exposed_us, evidence.step.compute_us)
    if evidence.simulation_doubt:
        return most
    return max(0.0, min(most, evidence.simulated().profile_us - evidence.least_us))


def _bound(most_us: float, why: str) -> Gain:
    return Gain(us=None, low_us=0.0, high_us=most_us, basis="bound", why=why)


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
COSTS_RULE = Rule(COSTS, "Are PGLE costs stale, or missing although much is exposed?", check_costs)
