"""A profile's events as Parquet or CSV, with the names of lane, device and host in each row."""

from __future__ import annotations

import csv
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from slipstream.errors import missing_extra
from slipstream.outputs.formatting import csv_cell
from slipstream.profile.events import Array, Table
from slipstream.profile.profile import Lane, Profile
from slipstream.writing import atomic_write

if TYPE_CHECKING:
    import pyarrow

TABLES = ("events", "host_events", "transfers")
"""tables of a profile with a row for each event"""


def write_parquet(profile: Profile, path: str | os.PathLike[str], table: str = "events") -> None:
    """Write one of `TABLES` as Parquet, with dictionary-encoded texts."""
    parquet = _pyarrow("writing Parquet", "parquet")
    rows = arrow_table(profile, getattr(profile, table))
    with atomic_write(path) as temporary:
        parquet.write_table(rows, temporary, compression="zstd")


def write_csv(profile: Profile, path: str | os.PathLike[str], table: str = "events") -> None:
    """Write one of `TABLES` as CSV, with a header."""
    events: Table = getattr(profile, table)
    texts = np.array([csv_cell(text) for text in events.texts], dtype=object)
    columns = {c.name: texts[events[c.name]] if c.text else events[c.name] for c in events.columns}
    for name, (values, which) in _places(profile, events["lane"]).items():
        columns[name] = np.array([csv_cell(value) for value in values], dtype=object)[which]
    with atomic_write(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*(array.tolist() for array in columns.values()), strict=True))


def arrow_table(profile: Profile, events: Table) -> pyarrow.Table:
    """Events as Arrow, with `lane_name`, `device` and `host`."""
    pa = _pyarrow("Arrow tables", "")
    columns: dict[str, Any] = {}
    for column in events.columns:
        array = events[column.name]
        columns[column.name] = _coded(pa, events.texts, array) if column.text else pa.array(array)
    for name, (values, which) in _places(profile, events["lane"]).items():
        columns[name] = _coded(pa, values, which)
    return pa.table(columns)


def _coded(pa: Any, texts: Any, indices: Array) -> Any:
    """A dictionary column of only the texts in use: columns share a profile's texts."""
    used, codes = np.unique(indices, return_inverse=True)
    values = [texts[i] for i in used.tolist()]
    missing = np.array([value is None for value in values], bool)
    coded = pa.array(codes.astype(np.int32), mask=missing[codes])
    return pa.DictionaryArray.from_arrays(coded, pa.array([v or "" for v in values], pa.string()))


def _places(profile: Profile, lanes: Array) -> dict[str, tuple[list[str | None], Array]]:
    """Names of each row's lane, device and host: the names there are, and which each row has."""
    return {
        "lane_name": ([lane.name for lane in profile.lanes], lanes),
        "device": ([device_name(profile, lane) for lane in profile.lanes], lanes),
        "host": ([profile.hosts[lane.host].name for lane in profile.lanes], lanes),
    }


def device_name(profile: Profile, lane: Lane) -> str | None:
    """Name of the device a lane belongs to; None for a host thread."""
    return None if lane.device is None else profile.devices[lane.device].name


def _pyarrow(purpose: str, module: str) -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise missing_extra("pyarrow", "parquet", purpose) from None
    return pyarrow.parquet if module else pyarrow
