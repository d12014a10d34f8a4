"""Transfers between slices of TPUs that a predicted step waits for, and why they are not hidden.

    send ──────── transfer ────────►│ recv-done

late         little compute is left between send and recv-done: it would have to begin earlier
bandwidth    transfers fill the network for most of the step: there are too many bytes
copy         the value is copied on the device before it is sent

Recordings show transfers on hosts, which `megascale` looks at; this is for simulated steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from slipstream.analyses.network.guide import copies_before
from slipstream.diagnosis.evidence import Evidence
from slipstream.diagnosis.rule import MOST_EXHIBITS, Rule, RuleResults
from slipstream.machines.tpu.slices import is_slice_transfer, receive_of
from slipstream.profile.events import Array
from slipstream.profile.program import Instruction, Program
from slipstream.profile.semantics.descriptions import describe, sums, transfer_kind
from slipstream.profile.semantics.names import source
from slipstream.profile.timeline.intervals import IntervalUnion
from slipstream.results.diagnosis import Exhibit, Finding, Gain, Remedy
from slipstream.units import format_bytes, format_time

NAME = "slice-transfers"
LATE, BANDWIDTH, COPIES = "slice-late", "slice-bandwidth", "slice-copies"
FULL = 0.75
"""share of the step that transfers fill, from which on their bytes are the problem"""
_GUIDE = "https://openxla.org/xla/megascale/performance"


@dataclass(frozen=True)
class _Transfer:
    send: Instruction
    waited_us: float
    """of its recv-done, per step"""
    lasted_us: float
    """per step"""
    times: int


def check(evidence: Evidence) -> RuleResults:
    """Why the step waits for other slices."""
    program, profile = evidence.program, evidence.profile
    beside = np.array([lane.role == "async" for lane in profile.lanes], bool)
    if program is None or not beside.any():
        return
    shown = beside[profile.events["lane"][:]]
    found = sorted(_transfers(evidence, program, shown), key=lambda one: -one.waited_us)
    if not found:
        return
    yield from _waits(evidence, program, found, shown)
    yield from _copies(evidence, program, found)


def _waits(
    evidence: Evidence, program: Program, found: list[_Transfer], shown: Array
) -> Iterator[Finding]:
    waited = [one for one in found if one.waited_us > 0]
    total = sum(one.waited_us for one in waited)
    if total < evidence.noticeable_us:
        return
    full = _busy_us(evidence, found, shown) / evidence.step.wall_us
    sent = sum(one.send.collective.bytes * one.times for one in found if one.send.collective)
    is_full = full >= FULL
    sentence = (
        f"The step waits {format_time(total * 1e6)} for other slices. Transfers are under way for "
        f"{full:.0%} of it, with {format_bytes(sent)} of values of each device. "
    )
    worst = waited[0]
    if is_full:
        sentence += "However early they begin, the network has no time left."
    else:
        hidden = 1 - worst.waited_us / worst.lasted_us if worst.lasted_us else 0.0
        sentence += (
            f"{worst.send.name} ({describe(program, worst.send)}) begins so late that "
            f"{max(hidden, 0.0):.0%} of it is hidden."
        )
    sentence += _hiding(evidence)
    yield Finding(
        BANDWIDTH if is_full else LATE,
        title="transfers between slices are too large for the network"
        if is_full
        else "transfers between slices begin too late to be hidden",
        evidence=sentence,
        gain=Gain(None, 0.0, total, "bound", "at most the time that the step waits for slices"),
        changes=_remedies(worst.send, is_full),
        exhibits=tuple(
            Exhibit(
                one.send.name,
                one.waited_us,
                one.times,
                source(program, one.send),
                describe(program, one.send),
                f"lasts {format_time(one.lasted_us * 1e6)}",
            )
            for one in waited[:MOST_EXHIBITS]
        ),
        see="slipstream network PATH",
        sources=(_GUIDE,),
    )


def _hiding(evidence: Evidence) -> str:
    """Which network would hide the transfers."""
    found = evidence.other_networks
    if found is None:
        return ""
    now = f"{found.now.gbps:,.0f} Gb/s per host and {format_time(found.now.latency_us * 1e6)}"
    if found.hidden_from_gbps is None:
        return f" The machine has {now} of latency; no bandwidth would hide them."
    rate = f"{found.hidden_from_gbps:,.0f} Gb/s"
    return f" The machine has {now} of latency; from {rate} on they would be hidden."


def _remedies(send: Instruction, is_full: bool) -> tuple[Remedy, ...]:
    """Gradients are summed; weights are gathered; a pipeline hands on what it computed."""
    if sums(send):
        return (_LESS,) if is_full else (_EARLIER, _LESS)
    return (_WITHIN if transfer_kind(send) == "all-gather" else _AHEAD,)


_WITHIN = Remedy(
    "code",
    'NamedSharding(mesh, P("fsdp"))',
    "shards weights over the chips of a slice alone, and gathers them over ICI: between slices, "
    "only gradients are sent",
)
_AHEAD = Remedy(
    "code",
    'received = jax.lax.ppermute(previous, "stage", pairs)',
    "sends what the last micro-batch computed while this one is computed; several micro-batches "
    "in flight hide each other's transfers",
)
_LESS = Remedy(
    "code",
    "grads = jax.tree.map(lambda g: g.astype(jnp.bfloat16), grads)",
    "sends half the bytes of f32; or accumulate gradients over several batches, and send them once",
)
_EARLIER = Remedy(
    "setting",
    "LIBTPU_INIT_ARGS=--xla_tpu_enable_data_parallel_all_reduce_opt=true "
    "--xla_tpu_data_parallel_opt_different_sized_ops=true",
    "lets XLA overlap the all-reduce of gradients between slices with the backward pass (MaxText "
    "uses both)",
)


def _copies(evidence: Evidence, program: Program, found: list[_Transfer]) -> Iterator[Finding]:
    copies = {}
    for one in found:
        for copy in copies_before(program, one.send):
            took = _us(evidence, copy.name)
            if took:
                copies[copy.name] = (copy, one, took)
    total = sum(took for _, _, took in copies.values())
    if total < evidence.noticeable_us:
        return
    ranked = sorted(copies.values(), key=lambda row: -row[2])
    copy, one, _ = ranked[0]
    yield Finding(
        COPIES,
        title="values are copied on the device before they go to other slices",
        evidence=f"{len(copies)} copies take {format_time(total * 1e6)} of the step before their "
        f"values are sent: {one.send.name} sends what {copy.name} copied.",
        gain=Gain(total, 0.0, total, "modelled", "the time of these copies"),
        changes=(_UNCOPIED,),
        exhibits=tuple(
            Exhibit(
                each.name,
                took,
                sent.times,
                source(program, each),
                describe(program, each),
                f"for {sent.send.name}",
            )
            for each, sent, took in ranked[:MOST_EXHIBITS]
        ),
        see="slipstream ops PATH",
        sources=(_GUIDE,),
    )


_UNCOPIED = Remedy(
    "code",
    "jax.lax.with_sharding_constraint(grads, …)",
    "produce gradients in the layout and sharding in which they are sent: a value that is "
    "transposed or resharded is copied first; a psum_scatter copies nothing if it splits a leading "
    "axis of its own, g.reshape(slices, …)",
)


def _transfers(evidence: Evidence, program: Program, shown: Array) -> Iterator[_Transfer]:
    for send in program.scheduled:
        if send.opcode != "send" or not is_slice_transfer(send):
            continue
        receive = receive_of(program, send)
        done = program.partner(receive.name) if receive is not None else None
        rows = _rows(evidence, send.name)
        rows = rows[shown[rows]]
        if done is not None and len(rows):
            lasted = float(evidence.profile.events["duration_ps"][rows].sum()) / 1e6
            yield _Transfer(send, _us(evidence, done.name), lasted, len(rows))


def _busy_us(evidence: Evidence, found: list[_Transfer], shown: Array) -> float:
    """Time in which any transfer is under way."""
    events = evidence.profile.events
    parts = [_rows(evidence, one.send.name) for one in found]
    rows = np.concatenate(parts)
    rows = rows[shown[rows]]
    union = IntervalUnion.of(events["start_ps"][rows], events["duration_ps"][rows])
    return float((union.ends - union.starts).sum()) / 1e6


def _rows(evidence: Evidence, instruction: str) -> Array:
    events = evidence.profile.events
    if instruction not in events.texts:
        return np.empty(0, np.int64)
    return np.flatnonzero(events["instruction"][:] == events.texts.index(instruction))


def _us(evidence: Evidence, instruction: str) -> float:
    rows = _rows(evidence, instruction)
    return float(evidence.profile.events["duration_ps"][rows].sum()) / 1e6


RULE = Rule(
    NAME,
    "Does a predicted step wait for transfers between slices?",
    check,
    needs_gpu=False,
)
