"""Labels of slices: events of one name, instruction and program form a group."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from slipstream.profile.events import Array, Table
from slipstream.profile.profile import Profile

if TYPE_CHECKING:
    from slipstream.analyses.labels import Label

_COLUMNS = ("program", "instruction", "name")


class Names:
    """The groups of a table's rows, and the text of each."""

    def __init__(self, table: Table) -> None:
        self.table = table

    @cached_property
    def groups(self) -> Array:
        """The group of each row."""
        return np.ascontiguousarray(self.table["name"], np.int32)

    def text(self, group: int) -> str:
        return self.table.texts[group]

    def readable(self, group: int) -> str:
        """What a group does, in the words of the model: `x @ w1`; empty if that isn't known yet."""
        return ""

    def description(self, group: int) -> str:
        """What a group is, in a few words, if that is already known."""
        return ""

    @cached_property
    def searched(self) -> list[str]:
        """The searchable text of each group, in lower case."""
        return [text.lower() for text in self.table.texts]


class EventNames(Names):
    """Groups of device events, named after their instruction, or else their kernel."""

    def __init__(self, profile: Profile) -> None:
        super().__init__(profile.events)
        self.profile = profile
        self._labels: dict[int, Label] = {}

    @cached_property
    def groups(self) -> Array:
        return self._grouped[0]

    @cached_property
    def firsts(self) -> Array:
        """The first row of each group; -1 if it has none."""
        return self._grouped[1]

    @cached_property
    def _grouped(self) -> tuple[Array, Array]:
        from slipstream.profile.grouping import group_pairs

        table = self.table
        if table.tags is not None and table.is_tagged(*_COLUMNS):
            return np.ascontiguousarray(table.tags.of), table.tags.firsts
        groups, _ = group_pairs(table["program"], table["instruction"])
        return group_pairs(groups, table["name"])

    def cells(self, column: str) -> Array:
        """A text column's value for each group; 0 for groups without rows."""
        found = self.table.cells(column, np.maximum(self.firsts, 0))
        return np.where(self.firsts >= 0, found, 0)

    def text(self, group: int) -> str:
        row = int(self.firsts[group])
        return self.table.text("instruction", row) or self.table.text("name", row)

    def label(self, group: int) -> Label:
        """The label of the group's instruction."""
        found = self._labels.get(group)
        if found is None:
            from slipstream.analyses.labels import label

            found = self._labels[group] = label(self.profile, int(self.firsts[group]))
        return found

    def make_labels(self) -> None:
        """Make the label of every group, which may parse whole programs."""
        for group in np.flatnonzero(self.firsts >= 0).tolist():
            self.label(group)

    def readable(self, group: int) -> str:
        # Making a label may parse a whole program, for which a view must not wait.
        found = self._labels.get(group)
        return found.description if found is not None else ""

    def description(self, group: int) -> str:
        found = self._labels.get(group)
        parts = (found.scope, found.source) if found is not None else ()
        return " · ".join(part for part in parts if part)

    @cached_property
    def searched(self) -> list[str]:
        return [self._searched(group) for group in range(len(self.firsts))]

    def _searched(self, group: int) -> str:
        if self.firsts[group] < 0:
            return ""
        row, words = int(self.firsts[group]), self.label(group)
        parts = (words.instruction, self.table.text("name", row), words.scope, words.source)
        return "\n".join((*parts, words.description, words.phase, words.category)).lower()

    def named(self, program: str, instruction: str) -> Array:
        """Whether each group belongs to that instruction."""
        wanted: Array = np.ones(len(self.firsts), np.bool_)
        for column, text in (("program", program), ("instruction", instruction)):
            alike = np.array([i for i, known in enumerate(self.table.texts) if known == text])
            wanted &= np.isin(self.cells(column), alike)
        return wanted
