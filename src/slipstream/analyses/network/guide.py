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
    is_awaited,
    memory_registrations,
)
from slipstream.analyses.network.slack import SliceCollective
from slipstream.machines.tpu.slices import is_slice_transfer
from slipstream.profile.program import Instruction, Program
from slipstream.units import format_bytes, format_time

PROBLEM, FINE, UNKNOWN = "problem", "fine", "unknown"
RECORDED, PREDICTED, NEITHER = "recorded", "predicted", "neither"
RECORD = "record some steps on the slices (slipstream.capture), then: slipstream network DIR"
_SAME_VALUE = ("bitcast", "get-tuple-element")
_COPIES = frozenset(("copy", "transpose", "reshape"))


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
    events, names, count = found.profile.events, set(), 0
    for program in _programs(found):
        for send in filter(is_slice_transfer, program.scheduled):
            copies = copies_before(program, send)
            names |= {copy.name for copy in copies}
            count += bool(copies)
    if not count:
        return ""
    wanted = [i for i, text in enumerate(events.texts) if text in names]
    rows = np.flatnonzero(np.isin(events["instruction"], wanted))
    us = float(events["duration_ps"][rows].sum()) / 1e6
    return (
        f". On the device, {_count(count, 'value')} {'is' if count == 1 else 'are'} copied before "
        f"being sent, in {format_time(us * 1e6)}: see slipstream diagnose"
    )


def copies_before(program: Program, send: Instruction) -> tuple[Instruction, ...]:
    """The copies on the device that a sent value went through, the last first."""
    found = []
    value = _only_operand(program, send) if send.opcode == "send" else None
    while value is not None:
        if _is_copy(program, value):
            found.append(value)
        elif value.opcode not in _SAME_VALUE:
            break
        value = _only_operand(program, value)
    return tuple(found)


def _only_operand(program: Program, instruction: Instruction) -> Instruction | None:
    """What it is computed from, if that is one value; a send also takes a token."""
    operands = program.operands(instruction)
    is_one = len(operands) == 1 or (instruction.opcode == "send" and len(operands) > 1)
    return operands[0] if is_one else None


def _is_copy(program: Program, value: Instruction) -> bool:
    """Whether it only copies; a reshape that were free would be a bitcast by now."""
    if value.opcode != "fusion":
        return value.opcode in _COPIES
    parts = {one.opcode for one in program.computations[value.called[0]].instructions}
    return bool(parts & _COPIES) and parts <= _COPIES | {"parameter", "bitcast"}


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
        return _predicted_latency(found)
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


def _predicted_latency(found: NetworkEvidence) -> NetworkProblem | _Verdict:
    """Which latency the schedule of a predicted step has room for."""
    machine = found.senders.machine
    if machine is None or not found.collectives:
        text = "the machine of this predicted step is not known here, nor its latency"
        return UNKNOWN, text, "name the machine: --on MACHINE"
    assumed_us = machine.network.latency_us
    text = (
        f"{_latest(found.collectives, assumed_us)}, each alone at "
        f"{machine.host_network_bandwidth * 8 / 1e9:,.0f} Gb/s per host; the prediction assumes "
        f"{format_time(assumed_us * 1e6)}"
    )
    late = [one for one in _late(found.collectives, assumed_us) if is_awaited(one, found)]
    if not late or not found.is_waiting:
        return FINE, text, ""
    steps = max(len(found.profile.steps), 1)
    return NetworkProblem(
        "latency",
        "transfers would be hidden on a network with less latency",
        text,
        sum(one.recv_done_us * one.occurrences for one in late) / steps,
        "give them more time: increase overlap (see slack); and measure the network's latency",
        "",
        GUIDE,
    )


def _latest(found: Sequence[SliceCollective], assumed_us: float) -> str:
    """`2 of 4 transfers stay hidden up to 14 ms of latency (the least: …), … at no latency`."""
    hidden = [one for one in found if _latency_of(one) >= assumed_us]
    late = _late(found, assumed_us)
    never = [one for one in found if one.hidden_to_latency_us is None]
    parts: list[tuple[str, bool, str]] = []
    if hidden:
        least = min(hidden, key=_latency_of)
        count = _count(len(found), "transfer")
        every = count if len(hidden) == len(found) else f"{len(hidden)} of {count}"
        which = f" (the least: {least.title})" if len(found) > 1 else f" ({least.title})"
        upto = f"up to {format_time(_latency_of(least) * 1e6)} of latency{which}"
        parts.append((every, len(hidden) > 1, upto))
    if late:
        most = format_time(max(_latency_of(one) for one in late) * 1e6)
        upto = f"only up to {most}{' at most' if len(late) > 1 else ''}"
        parts.append((_named(late), len(late) > 1, upto))
    if never:
        parts.append((_named(never), len(never) > 1, "at no latency"))
    (subject, are_many, where), *others = parts
    first = f"{subject} {'stay' if are_many else 'stays'} hidden {where}"
    return ", ".join([first, *(f"{who} {upto}" for who, _, upto in others)])


def _late(found: Sequence[SliceCollective], assumed_us: float) -> list[SliceCollective]:
    """Those that a network with less latency would hide."""
    return [one for one in found if 0 <= _latency_of(one) < assumed_us]


def _latency_of(one: SliceCollective) -> float:
    """Up to which it is hidden; below zero if at none."""
    return one.hidden_to_latency_us if one.hidden_to_latency_us is not None else -1.0


def _named(found: Sequence[SliceCollective]) -> str:
    """`all-reduce.13_0 (∂w1) and 3 more`."""
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return f"{found[0].title}{more}"


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
