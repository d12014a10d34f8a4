"""Device work in an Nsight Systems export: kernels, copies, memsets and whole CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from slipstream.profile.events import Array, Texts
from slipstream.sources.nsys.tables import Export, ExportRows

_PREFIX = "CUPTI_ACTIVITY_KIND_"
_COMMON = {
    "start": 0, "end": 0, "deviceId": 0, "streamId": 0, "correlationId": 0, "globalPid": 0,
    "graphNodeId": 0, "graphId": 0,
}  # fmt: skip
_NAMES = ("demangledName", "shortName", "mangledName", "name")
_SHAPE = (
    "registersPerThread", "staticSharedMemory", "dynamicSharedMemory",
    "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ",
)  # fmt: skip
_COPY = ("copyKind", "srcKind", "dstKind", "bytes", "dstDeviceId", "deviceId")
_MEMSET = ("memKind", "bytes", "value")
_DIRECTIONS = {
    1: "H2D", 2: "D2H", 3: "H2A", 4: "A2H", 5: "A2A", 6: "A2D", 7: "D2A", 8: "D2D", 9: "H2H",
    10: "P2P", 11: "H2D", 12: "D2H", 13: "D2D",
}  # fmt: skip
_MEMORY = ("pageable", "pinned", "device", "array", "managed", "device_static", "managed_static")


@dataclass(frozen=True)
class DeviceWork:
    """Device work of one table; texts are indices into the caller's texts."""

    start_ns: Array
    end_ns: Array
    device: Array
    stream: Array
    correlation: Array
    process: Array
    """global id of the process"""
    graph: Array
    graph_node: Array
    name: Array
    details: Array
    is_graph: bool = False
    """whether each row is a whole graph"""

    def __len__(self) -> int:
        return len(self.start_ns)


def read_device_work(export: Export, texts: Texts) -> list[DeviceWork]:
    """Everything that ran on devices, one element for each table."""
    parts = (
        _kernels(export, texts),
        _grouped(export, "MEMCPY", _COPY, texts, _copy),
        _grouped(export, "MEMSET", _MEMSET, texts, _memset),
        _graphs(export, texts),
    )
    return [part for part in parts if len(part)]


def _kernels(export: Export, texts: Texts) -> DeviceWork:
    from slipstream.profile.grouping import group_pairs

    table = f"{_PREFIX}KERNEL"
    column = export.first_of(table, *_NAMES) or "demangledName"
    written = "TEXT" in export.columns(table).get(column, "")
    numbers = _COMMON if written else {**_COMMON, column: 0}
    rows = export.read(table, numbers, (column,) if written else (), _SHAPE)
    groups, firsts = group_pairs(rows.digest, rows[column].astype(np.int32))
    used = rows[column][firsts]
    names = dict(enumerate(rows.texts[column])) if written else export.strings(used)
    shapes = export.rows_by_id(table, rows.rowid[firsts].tolist(), _SHAPE)
    return _work(
        rows,
        texts.map([names.get(one, f"kernel {one}") for one in used.tolist()])[groups],
        texts.map([_shape(shape) for shape in shapes])[groups],
    )


def _shape(values: tuple[Any, ...]) -> str:
    """A kernel's launch as JAX's profiler describes it."""
    if values[3] is None:
        return ""
    regs, static, dynamic, *sizes = (0 if value is None else int(value) for value in values)
    grid, block = (",".join(map(str, part)) for part in (sizes[:3], sizes[3:]))
    return f"regs:{regs} static_shared:{static} dynamic_shared:{dynamic} grid:{grid} block:{block}"


Describe = Callable[[tuple[Any, ...]], tuple[str, str]]


def _grouped(
    export: Export, kind: str, columns: tuple[str, ...], texts: Texts, describe: Describe
) -> DeviceWork:
    """Work whose name and details follow from some columns, with few distinct values."""
    from slipstream.profile.grouping import group_pairs

    table = f"{_PREFIX}{kind}"
    rows = export.read(table, _COMMON, mixed=columns)
    groups, firsts = group_pairs(rows.digest, rows["deviceId"].astype(np.int32))
    known = export.rows_by_id(table, rows.rowid[firsts].tolist(), columns)
    described = [describe(values) for values in known]
    return _work(
        rows,
        texts.map([name for name, _ in described])[groups],
        texts.map([details for _, details in described])[groups],
    )


def _copy(values: tuple[Any, ...]) -> tuple[str, str]:
    kind, source, target, size, other, device = values
    name = f"Memcpy{_DIRECTIONS.get(kind, '')}"
    dest = device if other is None else other
    text = f"kind_src:{_memory(source)} kind_dst:{_memory(target)} size:{size or 0} dest:{dest}"
    return name, text


def _memset(values: tuple[Any, ...]) -> tuple[str, str]:
    kind, size, value = values
    return "Memset", f"kind:{_memory(kind)} num_bytes:{size or 0} value:{value or 0}"


def _memory(kind: int | None) -> str:
    return _MEMORY[kind] if kind is not None and 0 <= kind < len(_MEMORY) else "unknown"


def _graphs(export: Export, texts: Texts) -> DeviceWork:
    from slipstream.profile.grouping import group_pairs

    rows = export.read(f"{_PREFIX}GRAPH_TRACE", _COMMON)
    groups, firsts = group_pairs(rows["graphId"], np.zeros(len(rows), np.int32))
    names = [f"CUDA graph {one}" for one in rows["graphId"][firsts].tolist()]
    return _work(rows, texts.map(names)[groups], np.zeros(len(rows), np.int32), is_graph=True)


def _work(rows: ExportRows, name: Array, details: Array, is_graph: bool = False) -> DeviceWork:
    node, graph = rows["graphNodeId"], rows["graphId"]
    if node.any():
        # Without a column for the graph, its id is the upper half of the node's.
        of_node = np.maximum(node >> 32, node != 0)
        graph = np.where(graph > 0, graph, of_node)
        node = np.where(node > 0, (node & 0xFFFFFFFF) + 1, 0)
    else:
        graph = np.maximum(graph, 0) if is_graph else np.zeros(len(rows), np.int64)
    return DeviceWork(
        rows["start"],
        rows["end"],
        rows["deviceId"],
        rows["streamId"],
        rows["correlationId"],
        rows["globalPid"],
        graph,
        node,
        name,
        details,
        is_graph,
    )
