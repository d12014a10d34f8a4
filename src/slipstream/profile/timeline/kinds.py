"""Kinds of device time: compute, communication, copy."""

from __future__ import annotations

import re

import numpy as np

from slipstream.profile.attribution import kernels
from slipstream.profile.events import Array, distinct
from slipstream.profile.profile import Profile
from slipstream.profile.semantics.signatures import COPY_STARTS

COMPUTE, COMMUNICATION, COPY = range(3)

# XLA names an instruction after its opcode, unless a user or a pass named it.
_COPY_LABEL = re.compile(r"(copy|slice|dynamic-slice|dynamic-update-slice)-(start|done)(\.\d+)*")
_COMMUNICATION_LABEL = re.compile(
    r"(all-reduce|all-gather|reduce-scatter|all-to-all|ragged-all-to-all|collective-permute"
    r"|collective-broadcast|send|recv)(-start|-done)?(\.\d+)*"
)


def kinds(profile: Profile) -> Array:
    """The kind of each event, by its instruction if that communicates, else by its name."""
    return profile.event_kinds


def find_kinds(profile: Profile) -> Array:
    """Compute the kinds, once per tag where the tags hold all columns that it takes."""
    from slipstream.profile.grouping import group_pairs

    events = profile.events
    if events.tags is not None and events.is_tagged("name", "program", "instruction"):
        firsts = events.tags.firsts
        columns = [events.tagged(column) for column in ("name", "program", "instruction")]
        used = firsts >= 0
        found = np.full(len(firsts), COMPUTE, np.uint8)
        groups, heads = group_pairs(columns[1][used], columns[2][used])
        found[used] = _found(profile, columns[0][used], groups, firsts[used][heads])
        return np.take(found, events.tags.of)
    groups, heads = group_pairs(events["program"], events["instruction"])
    return _found(profile, events["name"], groups, heads)


def _found(profile: Profile, names: Array, groups: Array, heads: Array) -> Array:
    """Kinds of rows with these names; `heads` are the first events of their instructions."""
    texts = profile.events.texts
    by_name = np.full(len(texts), COMPUTE, np.uint8)
    for index in distinct(names).tolist():
        kind = kernels.classify(texts[index]).kind
        if kind == kernels.COLLECTIVE:
            by_name[index] = COMMUNICATION
        elif kind == kernels.COPY:
            by_name[index] = COPY
    found = by_name[names]
    by_instruction = np.array([_kind_of(profile, row) for row in heads.tolist()], np.int16)
    if (by_instruction >= 0).any():
        stated = by_instruction[groups]
        wins = (stated == COMMUNICATION) | ((stated == COPY) & (found == COMPUTE))
        found = np.where(wins, stated, found)
    return found.astype(np.uint8, copy=False)


def _kind_of(profile: Profile, row: int) -> int:
    """The kind that the event's instruction implies; -1 if only the event's name can tell."""
    name, instruction = (profile.events.text(c, row) for c in ("program", "instruction"))
    if not instruction:
        return -1
    if name not in profile.programs or instruction not in profile.programs[name]:
        return _kind_of_label(instruction)
    program = profile.programs[name]
    found = program.instruction(instruction)
    # On a TPU, a `-done` event is the wait for what its start began.
    start = program.partner(instruction) if found.is_done else program.starter(instruction)
    both = [found] if start is None else [found, start]
    if any(one.collective is not None for one in both):
        return COMMUNICATION
    return COPY if any(one.opcode in COPY_STARTS for one in both) else -1


def _kind_of_label(label: str) -> int:
    if _COMMUNICATION_LABEL.fullmatch(label):
        return COMMUNICATION
    return COPY if _COPY_LABEL.fullmatch(label) else -1
