"""Convert unoptimised HLO, dumped by XLA or published, to StableHLO.

Obstacles, and how they are handled:

    copy                  has no StableHLO form: replaced by a reshape to the same shape
    partitioned already   the partitioner would divide it again: it is disabled
    groups along a mesh   this XLA can't always pass them on: replaced by lists of devices
    unknown custom calls  kernels of other libraries: XLA needs only a registered name
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from slipstream.jaxhooks import compiling, hlo
from slipstream.jaxhooks.custom_calls import OF_XLA, plain_calls
from slipstream.sources.hlo.proto import replica_groups
from slipstream.sources.hlo.replica_groups import KINDS, collective_kind

_HEADER = re.compile(rb"^\s*(?://[^\n]*\n\s*)*HloModule [^\n]*")
_COUNT = {
    "partitions": re.compile(rb"\bnum_partitions=(\d+)"),
    "replicas": re.compile(rb"\breplica_count=(\d+)"),
}
_FOR_PARTITIONER = re.compile(
    r"Sharding|SPMD(FullToShard|ShardToFull)Shape|CustomSPMDPartitioning|xla\.sdy\."
)
"""calls that XLA's partitioner replaces, so that only programs before it have them"""
_TILES = re.compile(r'mhlo\.sharding = "\{devices=\[([\d,]+)\]')


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
    is_partitioned = _is_partitioned(module)
    for proto in _instructions(module):
        if proto.HasField("mesh_axes_replica_group_list"):
            _list_devices(proto)
        if proto.opcode == "copy":
            proto.opcode = "reshape"
        elif proto.opcode == "custom-call" and not OF_XLA.match(proto.custom_call_target):
            unknown.setdefault(proto.custom_call_target)
    stablehlo = hlo.to_stablehlo(module.SerializeToString())
    if not any(counts.values()):
        counts |= _devices_named(module, stablehlo)
    if unknown:
        stablehlo = plain_calls(stablehlo, set(unknown))
    return ImportedHlo(
        stablehlo, **counts, is_partitioned=is_partitioned, unknown_calls=(*unknown,)
    )


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


def _is_partitioned(module: Any) -> bool:
    """Whether the program is that of one device already.

    `shard_map` has collectives and partition ids before that, too, but between calls for the
    partitioner; and a program that needs neither still has the partitioner's name.
    """
    every = [*_instructions(module)]
    if any(_FOR_PARTITIONER.match(one.custom_call_target) for one in every):
        return False
    if module.entry_computation_name.endswith("_spmd"):
        return True
    between = KINDS - {"send", "recv"}  # which go to the host, too
    return any(one.opcode == "partition-id" or collective_kind(one.opcode) in between
               for one in every)  # fmt: skip


def _list_devices(proto: Any) -> None:
    for group in replica_groups(proto):
        proto.replica_groups.add().replica_ids.extend(group)
    proto.ClearField("mesh_axes_replica_group_list")


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
