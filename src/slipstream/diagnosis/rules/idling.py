"""Idle device time: slow launches, late input, a busy host, or compiles during the steps."""

from __future__ import annotations

from collections import Counter

from slipstream.analyses.gaps import GapGroup
from slipstream.diagnosis.evidence import SIMULATION_ERROR, Evidence
from slipstream.diagnosis.rule import MOST_EXHIBITS, Rule, RuleResults
from slipstream.profile.events import distinct
from slipstream.results.diagnosis import Abstention, Exhibit, Finding, Gain, Remedy
from slipstream.simulate.graphs import FLAG as GRAPHS
from slipstream.units import format_time

LAUNCH, INPUT, HOST, COMPILE = "launch-bound", "input-bound", "host-bound", "compile-pauses"
IDLE = 0.02
"""minimum idle share of the step for a finding"""
UNKNOWN = 0.5
"""if more than this share of the idle time has no known cause, the rules abstain"""
ASYNC = "https://docs.jax.dev/en/latest/async_dispatch.html"
GRAPHS_GUIDE = "https://developer.nvidia.com/blog/cuda-graphs/"
CACHE = "https://docs.jax.dev/en/latest/persistent_compilation_cache.html"


def _unknown(evidence: Evidence, rule: str) -> RuleResults:
    """Abstain if there is idle time without a known cause."""
    found, step = evidence.gaps, evidence.step
    is_idle = step.idle_us >= IDLE * step.wall_us
    if is_idle and found.by_cause.get("unknown", 0.0) > UNKNOWN * found.idle_us:
        why = (
            f"the device is idle for {format_time(step.idle_us * 1e6)} of the step, and the host's "
            "launches, which would explain it, were not recorded"
        )
        yield Abstention(rule, why)


def _caused(evidence: Evidence, cause: str) -> float:
    """Idle time of the median step due to one cause; 0 if negligible."""
    found = evidence.gaps
    if not found.idle_us:
        return 0.0
    # Causes are means over the steps, which one slow step can dominate.
    us = evidence.step.idle_us * found.by_cause.get(cause, 0.0) / found.idle_us
    return us if us >= IDLE * evidence.step.wall_us else 0.0


def check_launches(evidence: Evidence) -> RuleResults:
    """Kernels shorter than their launches; simulates CUDA graphs where the run had none."""
    if evidence.step.idle_us < IDLE * evidence.step.wall_us:
        return
    if not any(device.kind in ("gpu", "cpu") for device in evidence.profile.devices):
        yield Abstention(LAUNCH, "it applies to GPUs and CPUs, and none was recorded")
        return
    us = _caused(evidence, "launch")
    graphs = _with_graphs(evidence)
    if not us and graphs is None:
        yield from _unknown(evidence, LAUNCH)
        return
    idle = (
        f"the device is idle for {format_time(us * 1e6)} of the step while the host launches"
        if us
        else f"the device is idle for {format_time(evidence.step.idle_us * 1e6)} of the step; the "
        "host's launches were not recorded, but the simulation shows the same gaps at launches"
    )
    count = len(evidence.profile.events) // max(1, len(evidence.profile.steps))
    graphs_are = f", {'with' if evidence.in_graphs else 'without'} CUDA graphs"
    what = "kernels and copies" if evidence.is_gpu else "operations"
    bound = Gain(
        us=None,
        low_us=0.0,
        high_us=us,
        basis="bound",
        why="at most the time during which the device waits for launches",
    )
    yield Finding(
        LAUNCH,
        title="the device waits for launches",
        evidence=f"{idle}: {count} {what} per step, {evidence.gaps.count} gaps"
        f"{graphs_are if evidence.is_gpu else ''}.",
        gain=graphs or bound,
        changes=_launch_changes(evidence, graphs is not None),
        exhibits=_exhibits(evidence, "launch"),
        see="slipstream gaps PATH",
        sources=(GRAPHS_GUIDE if evidence.is_gpu else ASYNC,),
    )


def _launch_changes(evidence: Evidence, has_graphs: bool) -> tuple[Remedy, ...]:
    default = evidence.flags.catalogue.flags.get(GRAPHS)
    changes: list[Remedy | None] = []
    if has_graphs and default is not None and default.default:
        note = (
            "the default: CUDA graphs launch many kernels at once; if the run had them, XLA "
            "turned them off during the recording"
        )
        changes.append(evidence.flag(GRAPHS, default.default, note))
    if not evidence.is_gpu:
        note = "one jitted call for the whole step: outside of it, each operation is a launch"
        changes.append(Remedy("code", "jax.jit(train_step)", note))
    changes.append(
        Remedy(
            "code",
            "jax.lax.scan, or a larger batch",
            "fewer, larger kernels; several steps in one jitted call need one launch",
        )
    )
    return tuple(change for change in changes if change is not None)


def _with_graphs(evidence: Evidence) -> Gain | None:
    """The gain of CUDA graphs if the run had none; None if negligible or unknown."""
    if evidence.in_graphs or evidence.simulation_doubt:
        return None
    now = evidence.simulated(graphs=False).profile_us
    won = now - evidence.simulated(graphs=True).profile_us
    error = SIMULATION_ERROR * now
    if won < IDLE * evidence.step.wall_us:
        return None
    return Gain(
        us=won,
        low_us=0.0,
        high_us=won + error,
        basis="simulated",
        why="the program simulated with and without CUDA graphs, with the recorded costs; launch "
        "costs are typical of an H200 host, and other hosts differ",
    )


def check_input(evidence: Evidence) -> RuleResults:
    """Input that is prepared or transferred while the device waits."""
    us = _caused(evidence, "input")
    if not us:
        yield from _unknown(evidence, INPUT)
    else:
        yield Finding(
            INPUT,
            title="the device waits for its input",
            evidence=f"the device is idle for {format_time(us * 1e6)} of the step while the "
            "launching thread prepares or transfers input.",
            gain=_measured(us, "all of it, if input is ready before it is needed"),
            changes=(
                Remedy(
                    "code",
                    "batch = next(batches); next_batch = jax.device_put(…)  # before the step",
                    "transfer the next batch before waiting for this step; load data in other "
                    "threads or processes (grain, tf.data)",
                ),
            ),
            exhibits=_exhibits(evidence, "input"),
            see="slipstream gaps PATH",
            sources=(ASYNC,),
        )


def check_host(evidence: Evidence) -> RuleResults:
    """Python, or a wait for results, between steps."""
    us = _caused(evidence, "host")
    if not us:
        yield from _unknown(evidence, HOST)
    else:
        yield Finding(
            HOST,
            title="the device waits for the host",
            evidence=f"the device is idle for {format_time(us * 1e6)} of the step while the "
            "launching thread does something else.",
            gain=_measured(us, "all of it, if the next step is launched before this one ends"),
            changes=(
                Remedy(
                    "code",
                    "# no block_until_ready(), float(loss) or print(loss) in every step",
                    "dispatch is asynchronous: fetch results of earlier steps, every few steps",
                ),
            ),
            exhibits=_exhibits(evidence, "host"),
            see="slipstream gaps PATH",
            sources=(ASYNC,),
        )


def check_compiles(evidence: Evidence) -> RuleResults:
    """Compiles during the recorded steps."""
    us = evidence.gaps.by_cause.get("compilation", 0.0)
    if us < IDLE * evidence.gaps.wall_us:
        yield from _unknown(evidence, COMPILE)
    else:
        # A mean over the steps, which may be more than the median step: its share is what counts.
        gain_us = us / evidence.gaps.wall_us * evidence.step.wall_us
        yield Finding(
            COMPILE,
            title="XLA compiles during the steps",
            evidence=f"the device waits {format_time(us * 1e6)} per recorded step, on average, "
            f"for a compile: {_compiled_again(evidence)}.",
            gain=Gain(
                us=gain_us,
                low_us=0.0,
                high_us=gain_us,
                basis="measured",
                why="for the recorded steps; later steps gain only if compiles recur",
            ),
            changes=(
                Remedy(
                    "setting",
                    "JAX_LOG_COMPILES=1",
                    "logs what is compiled: pad to fixed shapes, call jit once, outside the loop",
                ),
                Remedy(
                    "setting",
                    "JAX_COMPILATION_CACHE_DIR=DIR",
                    "reuses compiled programs across runs",
                ),
            ),
            exhibits=_exhibits(evidence, "compilation"),
            see="slipstream gaps PATH",
            sources=(CACHE,),
        )


def _compiled_again(evidence: Evidence) -> str:
    """Programs of one name, of which each ran: one function that was called in other ways."""
    events = evidence.profile.events
    programs = [events.texts[one] for one in distinct(events["program"]).tolist() if one]
    count = Counter(name.rpartition("(")[0] for name in programs)
    name = evidence.program_name.rpartition("(")[0]
    if not count[name] > 1:
        name = max(count, key=lambda one: count[one], default="")
    if not name or count[name] < 2:
        return "new shapes, new functions, or a recording that began too early"
    return (
        f"{name} ran as {count[name]} programs, so its calls differ in shapes, types or static "
        "arguments"
    )


def _measured(us: float, why: str) -> Gain:
    return Gain(us=us, low_us=0.0, high_us=us, basis="measured", why=why)


def _exhibits(evidence: Evidence, cause: str) -> tuple[Exhibit, ...]:
    found = [place for place in evidence.gaps.groups if cause in place.by_cause_us]
    found.sort(key=lambda place: -place.by_cause_us[cause])
    return tuple(_exhibit(place, cause) for place in found[:MOST_EXHIBITS])


def _exhibit(place: GapGroup, cause: str) -> Exhibit:
    longest = place.longest
    doing = longest.doing if longest.cause == cause else ""
    return Exhibit(
        doing or f"before {place.after or 'the end'}",
        place.by_cause_us[cause],
        0,
        longest.after_source,
        f"up to {format_time(longest.us * 1e6)}",
        f"before {place.after}" if doing and place.after else "",
    )


RULES = (
    Rule(LAUNCH, "Does the device wait for launches?", check_launches, False, False),
    Rule(INPUT, "Does the device wait for input?", check_input, False, False),
    Rule(HOST, "Does the device wait for the host between steps?", check_host, False, False),
    Rule(COMPILE, "Does XLA compile during the steps?", check_compiles, False, False),
)
