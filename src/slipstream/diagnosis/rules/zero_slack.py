"""Collectives and copies that the step waits for: what blocks them, and what could move."""

from __future__ import annotations

from slipstream.analyses.slack import Slack, SlackRow
from slipstream.diagnosis.evidence import Evidence
from slipstream.diagnosis.rule import MOST_EXHIBITS, Rule, RuleResults
from slipstream.diagnosis.rules.host_copies import explained
from slipstream.machines.tpu.slices import is_slice_transfer
from slipstream.results.diagnosis import Exhibit, Finding, Gain, Remedy
from slipstream.simulate.streams import SAME_SIDE, direction, is_copy
from slipstream.units import format_time

NAME = "zero-slack"


def check(evidence: Evidence) -> RuleResults:
    """Collectives and copies without slack that expose a noticeable part of the step."""
    step = evidence.step
    if step.exposed_communication_us + step.exposed_copy_us < evidence.noticeable_us:
        return
    rows = _critical(evidence)
    if not rows or evidence.program is None:
        return
    exposed_us = sum(row.exposed_us for row in rows)
    earlier_us = sum(min(row.exposed_us, row.earlier_us * row.count) for row in rows)
    if earlier_us < evidence.noticeable_us:
        earlier_us = 0.0
    yield Finding(
        NAME,
        title="the step waits for collectives or copies without slack",
        evidence=f"{_counts(evidence.slack, rows, exposed_us)} {_sentence(rows[0])}",
        gain=_gain(exposed_us, earlier_us, step.compute_us),
        changes=_changes(evidence, rows, earlier_us),
        exhibits=tuple(map(_exhibit, rows[:MOST_EXHIBITS])),
        see="slipstream slack PATH",
        sources=("docs/slack.md",),
    )


def _critical(evidence: Evidence) -> list[SlackRow]:
    """Rows without slack that are noticeably exposed.

    `host_copies` covers captured copies, `slice_transfers` what goes to other slices.
    """
    covered = explained(evidence)
    found = []
    for row in evidence.slack.rows:
        start = evidence.start(row.instruction)
        is_covered = start is not None and (start.name in covered or is_slice_transfer(start))
        if row.is_zero and not is_covered and row.exposed_us >= evidence.noticeable_us:
            found.append(row)
    return found


def _counts(slack: Slack, rows: list[SlackRow], exposed_us: float) -> str:
    """How many have no slack, as `slipstream slack` says, and for how many of them it matters."""
    none, total = sum(row.is_zero for row in slack.rows), len(slack.rows)
    many = "1 collective or copy" if total == 1 else f"{total} collectives and copies"
    these = f"{len(rows)} of them" if len(rows) < none else "them" if none > 1 else "it"
    has = "has" if none == 1 else "have"
    waits = f"the step waits {format_time(exposed_us * 1e6)} for {these}"
    return f"{none} of {many} {has} no slack; {waits}."


def _gain(exposed_us: float, earlier_us: float, compute_us: float) -> Gain:
    """What an earlier start would gain, or the bound if none of them could start earlier."""
    if not earlier_us:
        return Gain(
            us=None,
            low_us=0.0,
            high_us=exposed_us,
            basis="bound",
            why="at most the exposed time; none could have started earlier, so it takes less work "
            "or another order of the model's own operations",
        )
    return Gain(
        us=earlier_us,
        low_us=0.0,
        high_us=min(exposed_us, compute_us + earlier_us),
        basis="modelled",
        why="how much earlier their inputs were ready, at most the exposed time",
    )


def _exhibit(row: SlackRow) -> Exhibit:
    note = f"until {row.limit}"
    return Exhibit(row.instruction, row.exposed_us, row.count, row.source, row.description, note)


def _sentence(row: SlackRow) -> str:
    limit = f"{row.limit} ({row.limit_description})" if row.limit_description else row.limit
    blocked = f"{limit} waits for {row.instruction}, which starts after {row.after}"
    if row.earlier_us >= 1:
        return f"{blocked}, {format_time(row.earlier_us * 1e6)} later than it could."
    return f"{blocked}, as soon as its inputs are ready."


def _changes(evidence: Evidence, rows: list[SlackRow], earlier_us: float) -> tuple[Remedy, ...]:
    changes = []
    # XLA:TPU takes no measured costs.
    if earlier_us and evidence.is_gpu:
        note = "gives the scheduler measured costs, so that it can start these earlier"
        changes.append(Remedy("command", "slipstream run -- python train.py", note))
    if any(row.kind == "communication" for row in rows):
        note = "shard so that less data moves, or use a larger batch, which hides more"
        changes.append(Remedy("code", "jax.lax.with_sharding_constraint(x, …)", note))
    if any(_is_host_copy(evidence, row) for row in rows):
        note = "offload fewer names, or those that are needed last"
        policy = "jax.checkpoint_policies.save_and_offload_only_these_names(…)"
        changes.append(Remedy("code", policy, note))
    return tuple(changes)


def _is_host_copy(evidence: Evidence, row: SlackRow) -> bool:
    program, start = evidence.program, evidence.start(row.instruction)
    if program is None or start is None or not is_copy(program, start):
        return False
    return direction(program, start) != SAME_SIDE


RULE = Rule(NAME, "Which collectives and copies does the step wait for?", check, needs_gpu=False)
