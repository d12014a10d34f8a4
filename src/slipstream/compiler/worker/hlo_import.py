"""Convert unoptimised HLO, dumped by XLA or published, to StableHLO.

Obstacles, and how they are handled:

    copy                  has no StableHLO form: replaced by a reshape to the same shape
    partition-id          the program is already partitioned: the partitioner is disabled
    unknown custom calls  kernels of other libraries: XLA needs only a registered name
"""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from slipstream.jaxhooks import compiling, hlo

_HEADER = re.compile(rb"^\s*(?://[^\n]*\n\s*)*HloModule [^\n]*")
_COUNT = {
    "partitions": re.compile(rb"\bnum_partitions=(\d+)"),
    "replicas": re.compile(rb"\breplica_count=(\d+)"),
}
_TILES = re.compile(r'mhlo\.sharding = "\{devices=\[([\d,]+)\]')
_OF_XLA = re.compile(
    r"^(Sharding|SPMD\w+|xla\..*|__\w+\$.*|annotate_device_placement|MoveTo\w+|TopK|"
    r"LayoutConstraint|AllocateBuffer|SliceToDynamic|PadToStatic|ApproxTopK|tpu_custom_call|"
    r"InspectSharding|Layout|Pin|Unpin|CreateBuffer|X64\w*|ProducesRaggedShardings|mhlo\..*|"
    r"shape_assertion|stablehlo\..*|chlo\..*|_?[Xx]la\w*Attribute\w*)$"
)
_OF_JAX = ("xla_ffi_", "mosaic_gpu")
"""calls whose functions come with jaxlib"""
_STATUS_RETURNING = 2
"""the simplest custom-call API version: the function is not used at compile time"""


@dataclass(frozen=True)
class ImportedHlo:
    """A dumped program in a form that the current compiler accepts."""

    stablehlo: bytes
    partitions: int | None
    replicas: int | None
    is_partitioned: bool
    unknown_calls: tuple[str, ...]


def to_stablehlo(data: bytes) -> ImportedHlo:
    """Convert HLO text, an HloProto or an HloModuleProto."""
    header = _HEADER.match(data)
    counts = {name: _counted(pattern, header) for name, pattern in _COUNT.items()}
    module = _module(data, is_text=header is not None)
    assignment = module.device_assignment
    counts["partitions"] = counts["partitions"] or assignment.computation_count or None
    counts["replicas"] = counts["replicas"] or assignment.replica_count or None
    unknown: dict[str, None] = {}
    is_partitioned = False
    for proto in _instructions(module):
        if proto.opcode == "copy":
            proto.opcode = "reshape"
        elif proto.opcode == "partition-id":
            is_partitioned = True
        elif proto.opcode == "custom-call" and not _OF_XLA.match(proto.custom_call_target):
            unknown.setdefault(proto.custom_call_target)
    stablehlo = hlo.to_stablehlo(module.SerializeToString())
    if not any(counts.values()):
        counts |= _devices_named(module, stablehlo)
    if unknown:
        stablehlo = _plain_calls(stablehlo, set(unknown))
    return ImportedHlo(
        stablehlo, **counts, is_partitioned=is_partitioned, unknown_calls=(*unknown,)
    )


def with_stubs(stablehlo: bytes) -> tuple[bytes, tuple[str, ...]]:
    """A program whose calls of other libraries need only a name, and these names."""
    found: dict[str, None] = {}
    with compiling.parsed(stablehlo) as (module, ir):

        def visit(op: Any) -> Any:
            if op.operation.name == "stablehlo.custom_call":
                name = ir.StringAttr(op.operation.attributes["call_target_name"]).value
                if not _OF_XLA.match(name) and not name.startswith(_OF_JAX):
                    found.setdefault(name)
            return ir.WalkResult.ADVANCE

        module.operation.walk(visit)
    return _plain_calls(stablehlo, set(found)), (*found,)


def register_stubs(names: Sequence[str]) -> None:
    """Register names that XLA can call; they are never run."""
    for name in names:
        capsule = _capsule(ctypes.cast(_STUB, ctypes.c_void_p).value or 0)
        compiling.register_custom_call(name, capsule)


def _module(data: bytes, *, is_text: bool) -> Any:
    from slipstream.sources.proto_schema import message

    if is_text:
        return message("HloModuleProto").FromString(hlo.proto_from_text(data.decode()))
    from google.protobuf.message import DecodeError

    try:
        whole = message("HloProto").FromString(data)
        if whole.hlo_module.computations:
            return whole.hlo_module
    except DecodeError:
        pass
    return message("HloModuleProto").FromString(data)


def _instructions(module: Any) -> Iterator[Any]:
    for computation in module.computations:
        yield from computation.instructions


def _counted(pattern: re.Pattern[bytes], header: re.Match[bytes] | None) -> int | None:
    found = pattern.search(header[0]) if header else None
    return int(found[1]) if found else None


def _devices_named(module: Any, stablehlo: bytes) -> dict[str, int]:
    """The number of devices, from collectives or shardings, if a program doesn't state it."""
    from slipstream.sources.hlo.reader import program_from_proto

    program = program_from_proto(module.SerializeToString())
    found = [one.collective for one in program.instructions if one.collective is not None]
    ids = [device for one in found for group in one.replica_groups for device in group]
    ids += [device for one in found for pair in one.source_target_pairs for device in pair]
    if ids:
        # Collectives between partitions have channel ids; those between replicas may not.
        kind = "partitions" if any(one.channel_id for one in found) else "replicas"
        return {kind: 1 + max(ids)}
    tiles = [
        math.prod(map(int, one.split(",")))
        for one in _TILES.findall(compiling.stablehlo_text(stablehlo))
    ]
    return {"partitions": max(tiles, default=1)}


def _plain_calls(stablehlo: bytes, names: set[str]) -> bytes:
    """Give unknown calls the simplest API version; their attributes stay, as text, for models."""
    with compiling.parsed(stablehlo) as (module, ir):

        def visit(op: Any) -> Any:
            inner = op.operation
            if inner.name == "stablehlo.custom_call":
                name = ir.StringAttr(inner.attributes["call_target_name"]).value
                if name in names:
                    _make_plain(inner.attributes, ir)
            return ir.WalkResult.ADVANCE

        module.operation.walk(visit)
        return compiling.bytecode(module)


def _make_plain(attributes: Any, ir: Any) -> None:
    kind = ir.IntegerType.get_signless(32)
    attributes["api_version"] = ir.IntegerAttr.get(kind, _STATUS_RETURNING)
    for key in ("mhlo.backend_config", "backend_config"):
        if key in attributes and not isinstance(attributes[key], ir.StringAttr):
            text = str(attributes[key])
            del attributes[key]
            attributes["backend_config"] = ir.StringAttr.get(text)


_STUB = ctypes.CFUNCTYPE(None)(lambda: None)


def _capsule(address: int) -> Any:
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return new(address, b"xla._CUSTOM_CALL_TARGET", None)
