"""Event columns: the millions of rows of a profile, as plain arrays.

Text is interned: a text column holds indices into the table's `texts`, and index 0 is always the
empty text, which means "not recorded". A group-by is therefore a bincount.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from slipstream.errors import missing_extra

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

Array = np.ndarray[Any, np.dtype[Any]]
Rows = Array | slice
"""a selection of rows: a mask, indices, or a slice"""

TEXT = np.dtype(np.int32)
"""dtype of text columns: an index into `Table.texts`."""


@dataclass(frozen=True)
class Column:
    """One column: its name, its dtype, and a sentence that documents it."""

    name: str
    dtype: np.dtype[Any]
    doc: str
    text: bool = False


def _number(name: str, dtype: type[np.generic], doc: str) -> Column:
    return Column(name, np.dtype(dtype), doc)


def _text(name: str, doc: str) -> Column:
    return Column(name, TEXT, doc, text=True)


EVENT_COLUMNS = (
    _number("start_ps", np.int64, "start on the device, counted from the profile's origin"),
    _number("duration_ps", np.int64, "time on the device, excluding queueing"),
    _number("lane", np.int32, "index into the profile's lanes (a stream, or an XLA:CPU thread)"),
    _text("name", "kernel or copy name, as the profiler recorded it"),
    _text("op", "instruction label, as recorded; `command_buffer_N` inside a CUDA graph"),
    _text("program", "program that launched it, as `name(id)`"),
    _text("details", "launch or copy details, as recorded (grid, registers, copy size)"),
    _number(
        "correlation",
        np.int64,
        "launch that caused it; all nodes of a graph launch share it",
    ),
    _number("graph", np.int64, "id of the CUDA graph it ran in; 0 outside graphs"),
    _number(
        "graph_node",
        np.int64,
        "node of that graph, from 1 in the order of creation; 0 if not recorded",
    ),
    _text("instruction", "instruction it was attributed to; empty if none"),
    _number("execution", np.int32, "index of the program's execution on this device, from 0"),
)
"""Columns of `Profile.events`: one row for each kernel or copy on a device."""

HOST_COLUMNS = (
    _number("start_ps", np.int64, "start on the host, counted from the profile's origin"),
    _number("duration_ps", np.int64, "duration on the host"),
    _number("lane", np.int32, "index into the profile's lanes (a host thread)"),
    _text("name", "name of the trace event, function or CUDA call"),
    _number("correlation", np.int64, "id of the device launch it made; 0 if none"),
    _number("step", np.int64, "step number, if the event is a step annotation"),
    _number("is_step", np.bool_, "whether it is a step annotation"),
)
"""Columns of `Profile.host_events`: one row for each host trace event."""

TRANSFER_COLUMNS = (
    _number("start_ps", np.int64, "start of the transfer, counted from the profile's origin"),
    _number("duration_ps", np.int64, "duration of the transfer on the network"),
    _number("lane", np.int32, "index into the profile's lanes (a host thread)"),
    _text("name", "event name, such as `MegaScale: Communication Transport Receive`"),
    _text("label", "Megascale's label of the collective it belongs to"),
    _number("source_slice", np.int64, "slice that sends the bytes"),
    _number("source_device", np.int64, "device within that slice"),
    _number("destination_slice", np.int64, "slice that receives the bytes"),
    _number("destination_device", np.int64, "device within that slice"),
    _number("chunk", np.int64, "chunk number within the collective"),
    _number("loop_index", np.int64, "loop iteration it ran in"),
    _number("bytes", np.int64, "payload in bytes"),
    _number("has_ids", np.bool_, "whether all slice and device ids were recorded"),
)
"""Columns of `Profile.transfers`: one row for each Megascale host event."""


@dataclass(frozen=True)
class Tags:
    """Column values that many rows share, stored once per tag; `of` is the tag of each row."""

    of: Array
    values: Mapping[str, Array]
    """one array per column, with one value per tag"""

    @cached_property
    def firsts(self) -> Array:
        """First row of each tag; -1 for tags without rows."""
        from slipstream.profile.grouping import first_rows

        size = max((len(column) for column in self.values.values()), default=0)
        return first_rows(self.of, size)


@dataclass(frozen=True)
class Table:
    """Columns of equal length, declared by `columns`, with their interned texts.

    A column stored per tag is expanded to rows on first access.
    """

    columns: tuple[Column, ...]
    arrays: Mapping[str, Array]
    texts: Sequence[str] = field(repr=False)
    tags: Tags | None = None

    @classmethod
    def empty(cls, columns: tuple[Column, ...], texts: Sequence[str] = ("",)) -> Table:
        return cls(columns, {c.name: np.empty(0, c.dtype) for c in columns}, texts)

    def __len__(self) -> int:
        return len(self.arrays["start_ps"])

    def __getitem__(self, column: str) -> Array:
        found = self.arrays.get(column)
        if found is None:
            found = self._spread.get(column)
        if found is None:
            found = self._spread[column] = np.take(self.tagged(column), self._tags.of)
        return found

    def __contains__(self, column: str) -> bool:
        return column in self.arrays or (self.tags is not None and column in self.tags.values)

    @cached_property
    def _spread(self) -> dict[str, Array]:
        return {}

    @property
    def _tags(self) -> Tags:
        return self.tags or Tags(np.empty(0, np.int32), {})

    def is_tagged(self, *columns: str) -> bool:
        """Whether all these columns are stored per tag."""
        return self.tags is not None and all(column in self.tags.values for column in columns)

    def tagged(self, column: str) -> Array:
        """A column's values, one per tag."""
        return self._tags.values[column]

    def text(self, column: str, row: int) -> str:
        """The text of one cell; for whole columns, group by index instead."""
        if column in self.arrays:
            return self.texts[int(self.arrays[column][row])]
        return self.texts[int(self.tagged(column)[self._tags.of[row]])]

    def cells(self, column: str, rows: Array) -> Array:
        """A column's values in the given rows."""
        if self.tags is not None and self.is_tagged(column):
            return self.tagged(column)[self.tags.of[rows]]
        return self[column][rows]

    def take(self, rows: Rows) -> Table:
        """The rows selected by a mask or by indices, with the same texts."""
        tags = Tags(self.tags.of[rows], self.tags.values) if self.tags else None
        return Table(self.columns, {k: a[rows] for k, a in self.arrays.items()}, self.texts, tags)

    def replace(self, texts: Sequence[str] | None = None, **arrays: Array) -> Table:
        """A copy with some columns (and texts) replaced."""
        tags = self.tags
        if tags is not None:
            kept = {name: column for name, column in tags.values.items() if name not in arrays}
            tags = Tags(tags.of, kept)
        texts = self.texts if texts is None else texts
        return Table(self.columns, {**self.arrays, **arrays}, texts, tags)

    def retag(self, texts: Sequence[str] | None = None, **values: Array) -> Table:
        """A copy with some columns (and texts) replaced by values per tag."""
        arrays = {name: column for name, column in self.arrays.items() if name not in values}
        tags = Tags(self._tags.of, {**self._tags.values, **values})
        return Table(self.columns, arrays, self.texts if texts is None else texts, tags)

    def decoded(self, column: Column) -> Array:
        """A column for display: texts instead of their indices."""
        array = self[column.name]
        return np.asarray(self.texts, dtype=object)[array] if column.text else array

    def to_arrow(self) -> pyarrow.Table:
        """As a `pyarrow.Table`; text columns are dictionary-encoded, so no text is copied."""
        pa = _import("pyarrow", "parquet", "to_arrow()")
        dictionary = pa.array(list(self.texts), pa.string())
        return pa.table(
            {
                c.name: pa.DictionaryArray.from_arrays(pa.array(self[c.name]), dictionary)
                if c.text
                else pa.array(self[c.name])
                for c in self.columns
            }
        )

    def to_pandas(self) -> pandas.DataFrame:
        """As a `pandas.DataFrame`; text columns are categorical."""
        pd = _import("pandas", "tables", "to_pandas()")
        values = {}
        for column in self.columns:
            array = self[column.name]
            if column.text:
                used, codes = np.unique(array, return_inverse=True)
                categories = [self.texts[i] for i in used]
                array = pd.Categorical.from_codes(codes, categories=categories)
            values[column.name] = array
        return pd.DataFrame(values)

    def to_polars(self) -> polars.DataFrame:
        """As a `polars.DataFrame`."""
        pl = _import("polars", "tables", "to_polars()")
        frame: polars.DataFrame = pl.from_arrow(self.to_arrow())
        return frame


def distinct(values: Array) -> Array:
    """The distinct values, ascending: `numpy.unique` without its imports."""
    values = np.sort(values, kind="stable")
    return values[np.concatenate(([True], values[1:] != values[:-1]))] if len(values) else values


def median(values: Array | Sequence[float]) -> Array:
    """The median along the first axis: `numpy.median` without its imports."""
    values = np.asarray(values)
    low, high = (len(values) - 1) // 2, len(values) // 2
    parts = np.partition(values, (low, high), axis=0)
    middle: Array = parts[low] + (parts[high] - parts[low]) / 2  # the sum may not fit
    return middle


def joined(tables: Sequence[Table], texts: Sequence[str]) -> Table:
    """Concatenate tables that have the same columns and share their texts."""
    columns = tables[0].columns
    if len(tables) == 1:
        return Table(columns, tables[0].arrays, texts, tables[0].tags)
    shared = [c.name for c in columns if all(table.is_tagged(c.name) for table in tables)]
    arrays = {
        c.name: np.concatenate([table[c.name] for table in tables])
        for c in columns
        if c.name not in shared
    }
    if not shared:
        return Table(columns, arrays, texts)
    sizes = [len(table.tagged(shared[0])) for table in tables]
    places = np.cumsum([0, *sizes[:-1]], dtype=np.int32)
    of = [table.tags.of + place for table, place in zip(tables, places, strict=True) if table.tags]
    values = {name: np.concatenate([table.tagged(name) for table in tables]) for name in shared}
    return Table(columns, arrays, texts, Tags(np.concatenate(of), values))


def _import(package: str, extra: str, purpose: str) -> Any:
    import importlib

    try:
        return importlib.import_module(package)
    except ImportError:
        raise missing_extra(package, extra, purpose) from None


class Texts:
    """Interns text while a profile is read: one index per distinct string, 0 for the empty one."""

    def __init__(self, known: Sequence[str] = ("",)) -> None:
        self.values = list(known)
        self._index = {text: i for i, text in enumerate(self.values)}

    def index(self, text: str) -> int:
        found = self._index.get(text)
        if found is None:
            found = self._index[text] = len(self.values)
            self.values.append(text)
        return found

    def map(self, texts: Sequence[str], change: Callable[[str], str] = str) -> Array:
        """Indices of the texts after `change`, in order; maps a whole column through its texts."""
        return np.array([self.index(change(t)) for t in texts], dtype=TEXT)
