"""Collectives and copies that the step waits for: what blocks them, and what could move."""

from __future__ import annotations

from slipstream.analyses.slack import SlackRow
from slipstream.diagnosis.evidence import Evidence
from slipstream.diagnosis.rule import MOST_EXHIBITS, Rule, RuleResults
from slipstream.diagnosis.rules.host_copies import explained
from slipstream.results.diagnosis import Exhibit, Finding, Gain, Remedy
from slipstream.simulate.streams import SAME_SIDE, direction, is_copy
from slipstream.units import format_time

NAME = "zero-slack"


def check(evidence: Evidence) -> RuleResults:
    """Rows without slack that expose a noticeable part of the step."""
    if evidence.step.exposed_communication_us + evidence.step.exposed_copy_us < (
        evidence.noticeable_us
    ):
        return
    program = evidence.program
    inline = explained(evidence)
    rows = []
    for row in evidence.slack.rows:
        start = evidence.start(row.instruction)
        is_graphs = start is not None and start.name in inline
        if row.is_zero and not is_graphs and row.exposed_us >= evidence.noticeable_us:
            rows.append(row)
    total = sum(row.exposed_us for row in rows)
    if not rows or program is None:
        return
    early = sum(min(row.exposed_us, row.earlier_us * row.count) for row in rows)
    if early < evidence.noticeable_us:
        early = 0.0
    worst = rows[0]
    gain = Gain(
        early or None,
        0.0,
        min(total, evidence.step.compute_us + early) if early else total,
        "modelled" if early else "bound",
        "as much earlier as their inputs were there, at most what is exposed"
        if early
        else "no more than is exposed; they could not have begun earlier, so that less work or "
        "another order of the model's own operations is needed",
    )
    yield Finding(
        NAME,
        "the step waits for collectives or copies without slack",
        f"{len(rows)} of {len(evidence.slack.rows)} have no slack and are exposed for "
        f"{format_time(total * 1e6)} of the step. {_sentence(worst)}",
        gain,
        _changes(evidence, rows, early),
        tuple(
            Exhibit(
                row.instruction,
                row.exposed_us,
                row.count,
                row.source,
                row.description,
                f"until {row.limit}",
            )
            for row in rows[:MOST_EXHIBITS]
        ),
        "slipstream slack PATH",
        ("docs/slack.md",),
    )


def _sentence(row: SlackRow) -> str:
    limit = f"{row.limit} ({row.limit_description})" if row.limit_description else row.limit
    said = f"{limit} can't wait longer for {row.instruction}, which begins after {row.after}"
    if row.earlier_us >= 1:
        return f"{said}, {format_time(row.earlier_us * 1e6)} later than it could."
    return f"{said}: not earlier than its inputs."


def _changes(evidence: Evidence, rows: list[SlackRow], early: float) -> tuple[Remedy, ...]:
    changes = []
    if early:
        note = "gives the scheduler measured costs, so that it starts these earlier"
        changes.append(Remedy("command", "slipstream run -- python train.py", note))
    if any(row.kind == "communication" for row in rows):
        note = "shard so that less is moved, or make a step longer: a larger batch hides more"
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
