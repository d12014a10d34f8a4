"""Megascale's guide: each of its questions, in its order, answered from a profile.

A recording shows the hosts: registered memory, copies, and how long each transfer took. A
predicted step shows the schedule: slack, and what the network has to carry. Every answer says which
of the two it rests on; where neither is enough, it says so, and what would tell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from slipstream.analyses.network.latency import Latency
from slipstream.analyses.network.problems import (
    FEWEST_TRANSFERS,
    GUIDE,
    WAIT_SHARE,
    NetworkEvidence,
    NetworkProblem,
    memory_registrations,
)
from slipstream.machines.tpu.slices import is_slice_transfer
from slipstream.profile.program import Instruction, Program
from slipstream.units import format_bytes, format_time

PROBLEM, FINE, UNKNOWN = "problem", "fine", "unknown"
RECORDED, PREDICTED, NEITHER = "recorded", "predicted", "neither"
RECORD = "record some steps on the slices (slipstream.capture), then: slipstream network DIR"
_SAME_VALUE = ("bitcast", "reshape", "get-tuple-element")


@dataclass(frozen=True)
class GuideAnswer:
    """The answer to one question of the guide."""

    code: str
    """`profile`, `map-dma-buffer`, `memory-copies`, `small-slack`, `bandwidth`, `latency` or
    `hlo-dump`"""
    question: str
    verdict: str
    """`problem`, `fine` or `unknown`"""
    basis: str
    """what the answer rests on: `recorded`, `predicted` or `neither`"""
    evidence: str
    remedy: str
    """of a problem, the guide's advice; of something unknown, what would tell; otherwise empty"""
    per_step_us: float
    """time that a problem affects, per step; otherwise 0"""
    source: str
    """the part of the guide"""


@dataclass(frozen=True)
class _Traffic:
    """What the answers are taken from."""

    found: NetworkEvidence
    problems: Sequence[NetworkProblem]
    latency: Latency | None
    usage: str
    """what the network between slices carried, in words"""

    @property
    def basis(self) -> str:
        return PREDICTED if self.found.is_simulated else RECORDED

    def problem(self, *codes: str) -> NetworkProblem | None:
        return next((one for one in self.problems if one.code in codes), None)

    @property
    def waits(self) -> str:
        """`recv-done takes 1.8 ms of the step, 18%`."""
        found = self.found
        if not found.waits_us:
            return "no recv-done waits"
        share = found.waits_us / found.step_us if found.step_us else 0.0
        return f"recv-done takes {format_time(found.waits_us * 1e6)} of the step, {share:.1%}"


_Verdict = tuple[str, str, str]
"""verdict, evidence, and what to do"""


def guide_answers(
    found: NetworkEvidence,
    problems: Sequence[NetworkProblem],
    latency: Latency | None,
    usage: str,
) -> tuple[GuideAnswer, ...]:
    """The guide's questions, answered from one profile; empty if it has nothing between slices."""
    if not len(found.profile.transfers) and not found.collectives:
        return ()
    traffic = _Traffic(found, problems, latency, usage)
    return tuple(question.answer(traffic) for question in _QUESTIONS)


def joined_answers(
    recorded: Sequence[GuideAnswer], predicted: Sequence[GuideAnswer]
) -> tuple[GuideAnswer, ...]:
    """Answers of a recording; where it doesn't tell, those of a predicted step of the program."""
    others = {one.code: one for one in predicted}
    return tuple(
        others[one.code]
        if one.verdict == UNKNOWN and others.get(one.code, one).verdict != UNKNOWN
        else one
        for one in recorded
    )


@dataclass(frozen=True)
class _Question:
    code: str
    question: str
    anchor: str
    """of its part of the guide"""
    answered: Callable[[_Traffic], NetworkProblem | _Verdict]

    def answer(self, traffic: _Traffic) -> GuideAnswer:
        found = self.answered(traffic)
        us = 0.0
        if isinstance(found, NetworkProblem):
            us = found.per_step_us
            verdict, evidence, remedy = PROBLEM, found.evidence, found.remedy
        else:
            verdict, evidence, remedy = found
        return GuideAnswer(
            code=self.code,
            question=self.question,
            verdict=verdict,
            basis=NEITHER if verdict == UNKNOWN else traffic.basis,
            evidence=evidence,
            remedy=remedy,
            per_step_us=us,
            source=f"{GUIDE}#{self.anchor}",
        )


# The questions.


def _profile(traffic: _Traffic) -> _Verdict:
    found, profile = traffic.found, traffic.found.profile
    if found.is_simulated:
        return UNKNOWN, "these steps are predicted, and nothing ran", RECORD
    if not len(profile.steps):
        text = "no steps were found, so nothing can be said about the steady state"
        return UNKNOWN, text, "record several whole steps"
    hosts = len(profile.hosts)
    text = (
        f"{_count(found.steps, 'step')} on {_count(len(profile.devices), 'device')} of "
        f"{_count(hosts, 'host')}, with {_count(len(profile.transfers), 'event')} of Megascale"
    )
    return FINE, text, ""


def _map_dma_buffer(traffic: _Traffic) -> NetworkProblem | _Verdict:
    if (problem := traffic.problem("map-dma-buffer")) is not None:
        return problem
    if (unknown := _no_hosts(traffic)) is not None:
        return unknown
    found = traffic.found
    before = len(memory_registrations(found.profile, 0, found.start_ps))
    normal = f"; {_count(before, 'call')} before them, which is normal" if before else ""
    return FINE, f"no MapDmaBuffer call in {_count(found.steps, 'step')}{normal}", ""


def _memory_copies(traffic: _Traffic) -> NetworkProblem | _Verdict:
    if (problem := traffic.problem("memory-copies")) is not None:
        return problem
    if (unknown := _no_hosts(traffic)) is not None:
        verdict, evidence, remedy = unknown
        return verdict, evidence + _device_copies(traffic.found), remedy
    text = f"no memory copy inside a transfer in {_count(traffic.found.steps, 'step')}"
    return FINE, text, ""


def _no_hosts(traffic: _Traffic) -> _Verdict | None:
    """Why hosts can't be judged; None if they can."""
    found = traffic.found
    if found.is_simulated:
        return UNKNOWN, "a simulation has no host memory", RECORD
    if not len(found.profile.transfers):
        text = "the recording has no events of Megascale on its hosts"
        return (
            UNKNOWN,
            text,
            "record the hosts too (host_tracer_level of 1 or more)",
        )
    if not len(found.profile.steps):
        text = "no steps were found, so the steady state is unknown"
        return UNKNOWN, text, "record several whole steps"
    return None


def _device_copies(found: NetworkEvidence) -> str:
    """Copies on the device, which a simulation does show."""
    events, names = found.profile.events, set()
    for program in _programs(found):
        copies = (copied_before(program, i) for i in program.scheduled if is_slice_transfer(i))
        names |= {copy.name for copy in copies if copy is not None}
    if not names:
        return ""
    wanted = [i for i, text in enumerate(events.texts) if text in names]
    rows = np.flatnonzero(np.isin(events["instruction"], wanted))
    us = float(events["duration_ps"][rows].sum()) / 1e6
    count = _count(len(names), "value")
    return (
        f". On the device, {count} {'is' if len(names) == 1 else 'are'} copied before being sent, "
        f"in {format_time(us * 1e6)}: see slipstream diagnose"
    )


def copied_before(program: Program, send: Instruction) -> Instruction | None:
    """The copy on the device whose result is sent."""
    if send.opcode != "send":
        return None
    operands = program.operands(send)
    value = operands[0] if operands else None
    while value is not None and value.opcode in _SAME_VALUE:
        inner = program.operands(value)
        value = inner[0] if inner else None
    return value if value is not None and value.opcode in ("copy", "transpose") else None


def _slack(traffic: _Traffic) -> NetworkProblem | _Verdict:
    if (problem := traffic.problem("small-slack")) is not None:
        return problem
    found = traffic.found
    if not found.collectives:
        text = "no send and recv-done of the program are in the steps"
        return UNKNOWN, text, "record whole steps, with the program (the default of jax.profiler)"
    alone = traffic.problem("recv-done")
    if alone is not None and traffic.problem("bandwidth", "latency") is None:
        return replace(alone, remedy="increase overlap, or use a larger batch per replica")
    least = min(found.collectives, key=lambda one: one.slack_us)
    text = (
        f"{traffic.waits}; the least slack of {_count(len(found.collectives), 'collective')} is "
        f"{format_time(least.slack_us * 1e6)}, of {least.title}"
    )
    return FINE, text, ""


def _bandwidth(traffic: _Traffic) -> NetworkProblem | _Verdict:
    if (problem := traffic.problem("bandwidth")) is not None:
        return problem
    found = traffic.found
    if not found.collectives:
        return UNKNOWN, f"{traffic.usage}; no recv-done is in the steps", "record whole steps"
    if not found.is_waiting:
        below = f", below {WAIT_SHARE:.0%}" if found.waits_us else ""
        return FINE, f"{traffic.usage}; {traffic.waits}{below}", ""
    if found.capacity is None:
        text = f"{traffic.usage}; {traffic.waits}, but the network's rate is unknown"
        return UNKNOWN, text, "name it: --slice-gbps GBPS (per host), or --on MACHINE"
    return FINE, f"{traffic.usage}; it is not saturated while the TPU waits", ""


def _latency(traffic: _Traffic) -> NetworkProblem | _Verdict:
    if (problem := traffic.problem("latency")) is not None:
        return problem
    found, latency = traffic.found, traffic.latency
    if found.is_simulated:
        assumed = f": {format_time(found.latency_us * 1e6)}" if found.latency_us else ""
        how = "what longer ones would cost: slipstream predict --what-if network"
        return UNKNOWN, f"the latency of a predicted step is an assumption{assumed}", how
    count = latency.all.count if latency is not None else 0
    if latency is None or count < FEWEST_TRANSFERS:
        text = f"{_count(count, 'transfer')} between slices; {FEWEST_TRANSFERS} are needed"
        return UNKNOWN, text, "record more steps"
    times = (latency.all.p50_us, latency.all.p99_us, latency.all.most_us)
    median, high, most = (format_time(us * 1e6) for us in times)
    text = f"{_count(count, 'transfer')}: median {median}, 99% {high}, most {most}"
    if found.is_waiting and found.capacity is None:
        unknown = "; whether they are always slow can't be told without the network's rate"
        return UNKNOWN, text + unknown, "name it: --slice-gbps GBPS (per host), or --on MACHINE"
    return FINE, text, ""


def _hlo_dump(traffic: _Traffic) -> _Verdict:
    names = [program.name for program in _programs(traffic.found)]
    if names:
        text = f"the profile contains {', '.join(sorted(set(names)))}, as it was compiled"
        return FINE, text, ""
    how = "XLA_FLAGS=--xla_dump_to=DIR writes it; --dumps DIR reads it"
    return UNKNOWN, "the profile does not contain the program", how


_QUESTIONS = (
    _Question("profile", "Is there a profile of the run?", "get-an-xprof-session", _profile),
    _Question(
        "map-dma-buffer",
        "Is memory registered for DMA while the steps run?",
        "check-for-shortage-of-mapped-dma-buffers",
        _map_dma_buffer,
    ),
    _Question(
        "memory-copies",
        "Is memory copied during transfers?",
        "check-for-memory-copies-during-network-transfers",
        _memory_copies,
    ),
    _Question(
        "small-slack",
        "Do collectives have too little slack?",
        "collective-slack-too-small",
        _slack,
    ),
    _Question(
        "bandwidth",
        "Does the network's bandwidth limit the step?",
        "high-network-bandwidth-demand",
        _bandwidth,
    ),
    _Question("latency", "Are transfers slow (RPC latency)?", "high-network-latency", _latency),
    _Question("hlo-dump", "Is the program at hand (HLO dump)?", "hlo-dump", _hlo_dump),
)


def _programs(found: NetworkEvidence) -> list[Program]:
    """The programs of the steps, of those that the profile contains."""
    profile = found.profile
    names = {profile.events.texts[i] for i in np.unique(profile.events["program"]).tolist()}
    return [profile.programs[name] for name in sorted(names) if name in profile.programs]


def usage_text(per_step_bytes: float, mean: float, peak: float, capacity: float | None) -> str:
    """`8 MB per step, 800 MB/s on average, 4.17 GB/s at most, of 12.5 GB/s`."""
    of = f", of {format_bytes(capacity)}/s" if capacity else ""
    return (
        f"a host's network carries {format_bytes(per_step_bytes)} per step, "
        f"{format_bytes(mean)}/s on average and {format_bytes(peak)}/s at most{of}"
    )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
