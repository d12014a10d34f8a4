"""The names and annotations of events."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slipstream.analyses.labels import found_instruction, label_of
from slipstream.profile.events import Array, Table
from slipstream.profile.profile import Profile

_COLUMNS = {"kernel": "name", "op": "op", "program": "program", "details": "details"}
"""annotations of a device event, and the columns they come from"""


@dataclass(frozen=True)
class EventSlices:
    """The events of one table; rows with equal names and annotations are of one kind."""

    table: Table
    category: str
    kinds: Array
    labels: list[tuple[str, dict[str, str]]]
    """name and annotations of each kind"""


def device_slices(profile: Profile) -> EventSlices:
    """Device events, named after what they compute and their instruction, or else their kernel."""
    table = profile.events
    kinds, firsts = _kinds(table, ("instruction", *_COLUMNS.values()))
    labels = [_label(profile, row) for row in firsts.tolist()]
    return EventSlices(table, "device", kinds, labels)


def host_slices(profile: Profile) -> EventSlices:
    """Host events, under their recorded names."""
    table = profile.host_events
    kinds, firsts = _kinds(table, ("name",))
    return EventSlices(
        table, "host", kinds, [(table.text("name", row), {}) for row in firsts.tolist()]
    )


def _label(profile: Profile, row: int) -> tuple[str, dict[str, str]]:
    table = profile.events
    notes = {note: table.text(column, row) for note, column in _COLUMNS.items()}
    instruction = table.text("instruction", row)
    found = found_instruction(profile, notes["program"], instruction)
    if found is None:
        return instruction or notes["kernel"], notes
    named = label_of(notes["program"], *found)
    what = {
        "instruction": named.instruction,
        "source": named.source,
        "scope": named.scope,
        "phase": named.phase,
        "category": named.category,
    }
    name = f"{named.description} · {named.instruction}" if named.description else instruction
    return name, {**what, **notes}


def _kinds(table: Table, columns: tuple[str, ...]) -> tuple[Array, Array]:
    """(kind of each row, a row of each kind)"""
    if table.tags is None or not table.is_tagged(*columns):
        kinds = _numbered([table[column] for column in columns], len(table))
        return kinds, _examples(kinds, np.arange(len(kinds)))
    used = np.flatnonzero(table.tags.firsts >= 0)
    kinds = _numbered([table.tagged(column)[used] for column in columns], len(used))
    of_tag = np.zeros(len(table.tags.firsts), np.int64)
    of_tag[used] = kinds
    return np.take(of_tag, table.tags.of), _examples(kinds, table.tags.firsts[used])


def _numbered(columns: list[Array], rows: int) -> Array:
    """A number for each row, the same where all columns are the same."""
    kinds = np.zeros(rows, np.int64)
    for values in columns:
        kinds = kinds * (int(values.max(initial=0)) + 1) + values
        kinds = np.unique(kinds, return_inverse=True)[1].astype(np.int64)
    return kinds


def _examples(kinds: Array, rows: Array) -> Array:
    found = np.zeros(int(kinds.max(initial=-1)) + 1, np.int64)
    found[kinds] = rows
    return found
