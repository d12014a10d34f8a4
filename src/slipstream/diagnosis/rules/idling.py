"""Idle device time: the host launches too slowly, feeds too late, or compiles meanwhile."""

from __future__ import annotations

from slipstream.analyses.gaps import Gap
from slipstream.diagnosis.evidence import SIMULATION_ERROR, Evidence
from slipstream.diagnosis.rule import MOST_EXHIBITS, Rule, RuleResults
from slipstream.results.diagnosis import Abstention, Exhibit, Finding, Gain, Remedy
from slipstream.simulate.graphs import FLAG as GRAPHS
from slipstream.units import format_time

LAUNCH, INPUT, HOST, COMPILE = "launch-bound", "input-bound", "host-bound", "compile-pauses"
IDLE = 0.02
"""share of the step that must be idle before its cause is worth a finding"""
UNKNOWN = 0.5
"""share of the idle time without a known cause beyond which nothing is said"""
ASYNC = "https://docs.jax.dev/en/latest/async_dispatch.html"
CACHE = "https://docs.jax.dev/en/latest/persistent_compilation_cache.html"


def _unknown(evidence: Evidence, rule: str) -> RuleResults:
    """That there is idle time, and its cause is not known; nothing where it is."""
    found, step = evidence.gaps, evidence.step
    is_idle = step.idle_us >= IDLE * step.wall_us
    if is_idle and found.by_cause.get("unknown", 0.0) > UNKNOWN * found.idle_us:
        why = (
            f"the device idles {format_time(step.idle_us * 1e6)} of the step, and the host's "
            "launches, which would say why, were not recorded"
        )
        yield Abstention(rule, why)


def _caused(evidence: Evidence, cause: str) -> float:
    """Idle time of the median step by one cause; 0 where it is not worth a word."""
    found = evidence.gaps
    if not found.idle_us:
        return 0.0
    # Causes are means over the steps, in which one slow step counts for many.
    us = evidence.step.idle_us * found.by_cause.get(cause, 0.0) / found.idle_us
    return us if us >= IDLE * evidence.step.wall_us else 0.0


def check_launches(evidence: Evidence) -> RuleResults:
    """Kernels shorter than their launches; CUDA graphs, where there are none, are simulated."""
    if evidence.step.idle_us < IDLE * evidence.step.wall_us:
        return
    us = _caused(evidence, "launch")
    graphs = _with_graphs(evidence)
    if not us and graphs is None:
        yield from _unknown(evidence, LAUNCH)
        return
    said = (
        f"{format_time(us * 1e6)} of the step the device idles while the host launches"
        if us
        else f"the device idles {format_time(evidence.step.idle_us * 1e6)} of the step; the host's "
        "launches were not recorded, but the simulation has the same gaps where it launches"
    )
    kernels = len(evidence.profile.events) // max(1, len(evidence.profile.steps))
    bound = Gain(None, 0.0, us, "bound", "the device idles no longer than that for launches")
    yield Finding(
        LAUNCH,
        "the device waits for launches",
        f"{said}: {kernels} kernels and copies a step, {evidence.gaps.count} gaps, "
        f"{'in' if evidence.in_graphs else 'without'} CUDA graphs.",
        graphs or bound,
        _launch_changes(evidence, graphs is not None),
        _exhibits(evidence, "launch"),
        "slipstream gaps PATH",
        ("https://developer.nvidia.com/blog/cuda-graphs/",),
    )


def _launch_changes(evidence: Evidence, has_graphs: bool) -> tuple[Remedy, ...]:
    default = evidence.flags.catalogue.flags.get(GRAPHS)
    changes: list[Remedy | None] = []
    if has_graphs and default is not None and default.default:
        note = (
            "CUDA graphs, as by default: one launch for many kernels; if the run had them, XLA "
            "left them out while it was recorded"
        )
        changes.append(evidence.flag(GRAPHS, default.default, note))
    changes.append(
        Remedy(
            "code",
            "jax.lax.scan, or a larger batch",
            "fewer and larger kernels; several steps in one jitted call launch once",
        )
    )
    return tuple(change for change in changes if change is not None)


def _with_graphs(evidence: Evidence) -> Gain | None:
    """What CUDA graphs would win, where there are none; None where that can't be told."""
    if evidence.in_graphs or evidence.simulation_doubt:
        return None
    now = evidence.simulated(graphs=False).profile_us
    won = now - evidence.simulated(graphs=True).profile_us
    error = SIMULATION_ERROR * now
    if won < IDLE * evidence.step.wall_us:
        return None
    return Gain(
        won,
        0.0,
        won + error,
        "simulated",
        "the program simulated with and without CUDA graphs, with the costs of the recording; what "
        "a launch costs the host is typical of one H200's, and other hosts differ",
    )


def check_input(evidence: Evidence) -> RuleResults:
    """Input that is made or sent while the device waits."""
    us = _caused(evidence, "input")
    if not us:
        yield from _unknown(evidence, INPUT)
    else:
        yield Finding(
            INPUT,
            "the device waits for its input",
            f"{format_time(us * 1e6)} of the step the device idles while the thread that launches "
            "makes or sends input.",
            _measured(us, "all of it where input is ready before it is needed"),
            (
                Remedy(
                    "code",
                    "batch = next(batches); next_batch = jax.device_put(…)  # before the step",
                    "send the next batch before waiting for this step; load in other threads or "
                    "processes (grain, tf.data)",
                ),
            ),
            _exhibits(evidence, "input"),
            "slipstream gaps PATH",
            (ASYNC,),
        )


def check_host(evidence: Evidence) -> RuleResults:
    """Python, or a wait for results, between steps."""
    us = _caused(evidence, "host")
    if not us:
        yield from _unknown(evidence, HOST)
    else:
        yield Finding(
            HOST,
            "the device waits for the host",
            f"{format_time(us * 1e6)} of the step the device idles while the thread that launches "
            "does something else.",
            _measured(us, "all of it where the next step is launched before this one has ended"),
            (
                Remedy(
                    "code",
                    "# no block_until_ready(), float(loss) or print(loss) in every step",
                    "dispatch is asynchronous: fetch results of earlier steps, every so many steps",
                ),
            ),
            _exhibits(evidence, "host"),
            "slipstream gaps PATH",
            (ASYNC,),
        )


def check_compiles(evidence: Evidence) -> RuleResults:
    """Compiles inside the steps that were recorded."""
    us = evidence.gaps.by_cause.get("compilation", 0.0)
    if us < IDLE * evidence.gaps.wall_us:
        yield from _unknown(evidence, COMPILE)
    else:
        yield Finding(
            COMPILE,
            "XLA compiles while the steps run",
            f"{format_time(us * 1e6)} of a recorded step the device waits for a compile: new "
            "shapes, new functions, or a recording that began too early.",
            Gain(
                us,
                0.0,
                us,
                "measured",
                "of the recorded steps; later ones win it only if compiles come again and again",
            ),
            (
                Remedy(
                    "setting",
                    "JAX_LOG_COMPILES=1",
                    "says what is compiled: pad to fixed shapes, jit once outside of the loop",
                ),
                Remedy(
                    "setting", "JAX_COMPILATION_CACHE_DIR=DIR", "keeps programs from run to run"
                ),
            ),
            _exhibits(evidence, "compilation"),
            "slipstream gaps PATH",
            (CACHE,),
        )


def _measured(us: float, why: str) -> Gain:
    return Gain(us, 0.0, us, "measured", why)


def _exhibits(evidence: Evidence, cause: str) -> tuple[Exhibit, ...]:
    found = [gap for gap in evidence.gaps.longest if gap.cause == cause]
    return tuple(_exhibit(gap) for gap in found[:MOST_EXHIBITS])


def _exhibit(gap: Gap) -> Exhibit:
    return Exhibit(
        gap.doing or f"before {gap.after or 'the end'}",
        gap.us,
        0,
        gap.after_source,
        f"in step {gap.step}",
        f"before {gap.after}" if gap.doing and gap.after else "",
    )


RULES = (
    Rule(LAUNCH, "Does the device wait for launches?", check_launches, needs_program=False),
    Rule(INPUT, "Does the device wait for input?", check_input, False, False),
    Rule(HOST, "Does the device wait for the host between steps?", check_host, False, False),
    Rule(COMPILE, "Does XLA compile while the steps run?", check_compiles, False, False),
)
