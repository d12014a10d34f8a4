"""HloProto bytes into a Program."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from slipstream.profile.program import Collective, Computation, Instruction, Program
from slipstream.profile.shapes import Shape
from slipstream.sources.hlo.attributes import attributes_of, is_between_slices, trip_count_of
from slipstream.sources.hlo.collective_fusions import with_collective_fusions
from slipstream.sources.hlo.replica_groups import (
    Groups,
    collective_kind,
    describe_collective,
    devices_of,
    iota_groups,
    list_groups,
    mesh_groups,
)
from slipstream.sources.hlo.trip_counts import with_trip_counts

# The numbers that XLA gives its element types.
_DTYPES = {
    1: "pred", 2: "s8", 3: "s16", 4: "s32", 5: "s64", 6: "u8", 7: "u16", 8: "u32", 9: "u64",
    10: "f16", 11: "f32", 12: "f64", 13: "tuple", 14: "opaque", 15: "c64", 16: "bf16",
    17: "token", 18: "c128", 19: "f8e5m2", 20: "f8e4m3fn", 21: "s4", 22: "u4",
    23: "f8e4m3b11fnuz", 24: "f8e5m2fnuz", 25: "f8e4m3fnuz", 26: "s2", 27: "u2", 28: "f8e4m3",
    29: "f8e3m4", 30: "s1", 31: "u1", 32: "f4e2m1fn", 33: "f8e8m0fnu", 34: "buffer",
    35: "f6e3m2fn", 36: "f6e2m3fn",
}  # fmt: skip
_MODELLED = (
    "id", "operand_ids", "control_predecessor_ids", "called_computation_ids", "metadata",
    "backend_config", "backend_config_payload",
)  # fmt: skip
"""fields of an instruction that hold ids or source positions, or are kept as they are"""
_ASYNC = re.compile(r"async-(start|update|done)")


class ModuleReader:
    """Turns an HloModuleProto into a Program; KeyError, IndexError, ValueError if inconsistent."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.computations = {c.id: c for c in module.computations}
        self.names = {i.id: i.name for c in module.computations for i in c.instructions}
        self.shapes: dict[bytes, Shape] = {}
        self.shape_of: dict[int, Shape] = {}
        self.roots = {
            c.id: next(i for i in c.instructions if i.id == c.root_id) for c in module.computations
        }
        self.opcodes = self._opcodes()
        self.collectives: dict[int, Collective] = {}
        count = module.device_assignment.replica_count * module.device_assignment.computation_count
        self.devices = count or None

    def program(self, jaxlib_version: str | None, flags: Mapping[str, str]) -> Program:
        module = self.module
        for computation in module.computations:
            for proto in computation.instructions:
                self.shape_of[proto.id] = self._shape(proto.shape)
        built = {c.name: self._computation(c) for c in module.computations}
        built = with_trip_counts(with_collective_fusions(built))
        attributes = module.frontend_attributes.map
        return Program(
            name=module.name,
            entry=built[self.computations[module.entry_computation_id].name],
            computations=built,
            program_id=module.id,
            fingerprint=attributes.get("fingerprint_before_lhs") or None,
            jaxlib_version=jaxlib_version,
            flags=dict(flags),
            is_scheduled=len(module.schedule.sequences) > 0,
            aliases={
                (tuple(entry.output_shape_index) or (0,))[0]: entry.parameter_number
                for entry in module.input_output_alias.entries
            },
            device_ids=tuple(
                device
                for partition in module.device_assignment.computation_devices
                for device in partition.replica_device_ids
            ),
            unmodelled=self._unmodelled(),
        )

    def _unmodelled(self) -> str:
        """A digest of what instructions say, fields included that this schema does not know.

        It leaves out ids, which differ each time that a program is compiled, and source positions.
        """
        digest = hashlib.sha256()
        for computation in sorted(self.module.computations, key=lambda one: one.name):
            for proto in computation.instructions:
                for field in _MODELLED:
                    proto.ClearField(field)  # nothing reads the message after this
                digest.update(proto.SerializeToString(deterministic=True))
        return digest.hexdigest()

    def _opcodes(self) -> dict[int, str]:
        """Opcodes that differ from the proto's, by id: `async-start` becomes `all-gather-start`."""
        found: dict[int, str] = {}
        for computation in self.module.computations:
            for proto in computation.instructions:
                match = _ASYNC.fullmatch(proto.opcode)
                if match is None:
                    continue
                if match[1] == "start":
                    found[proto.id] = f"{self.roots[proto.called_computation_ids[0]].opcode}-start"
                elif start := found.get(proto.operand_ids[0]):
                    found[proto.id] = f"{start.rsplit('-', 1)[0]}-{match[1]}"
        return found

    def _shape(self, proto: Any) -> Shape:
        key = proto.SerializeToString()
        shape = self.shapes.get(key)
        if shape is None:
            shape = self.shapes[key] = Shape(
                _DTYPES.get(proto.element_type, "opaque"),
                tuple(proto.dimensions),
                tuple(proto.layout.minor_to_major),
                proto.layout.memory_space,
                tuple(self._shape(element) for element in proto.tuple_shapes),
                tuple(tuple(tile.dimensions) for tile in proto.layout.tiles),
            )
        return shape

    def _computation(self, proto: Any) -> Computation:
        instructions = proto.instructions
        if proto.id in self.module.schedule.sequences:
            by_id = {i.id: i for i in instructions}
            sequence = self.module.schedule.sequences[proto.id].instruction_ids
            instructions = [by_id[i] for i in sequence]
            if len(instructions) != len(by_id):
                raise ValueError(f"the schedule of {proto.name} leaves instructions out")
        built = tuple(
            self._instruction(i, proto, position) for position, i in enumerate(instructions)
        )
        root = next(i for i in built if i.is_root)
        return Computation(proto.name, built, root)

    def _instruction(self, proto: Any, computation: Any, position: int) -> Instruction:
        opcode = self.opcodes.get(proto.id, proto.opcode)
        metadata = proto.metadata
        config = self._backend_config(proto)
        source_file, source_line = self._source(metadata)
        return Instruction(
            name=proto.name,
            opcode=opcode,
            shape=self.shape_of[proto.id],
            operands=tuple([self.names[i] for i in proto.operand_ids]),
            computation=computation.name,
            position=position,
            op_name=metadata.op_name,
            source_file=source_file,
            source_line=source_line,
            scheduling_name=metadata.scheduling_name,
            deduplicated_name=metadata.deduplicated_name,
            called=tuple([self.computations[i].name for i in proto.called_computation_ids]),
            fusion_kind=proto.fusion_kind,
            custom_call_target=proto.custom_call_target,
            backend_config=config,
            trip_count=trip_count_of(config) if opcode == "while" else None,
            collective=self._collective(proto, opcode, config) if collective_kind(opcode) else None,
            unique_id=proto.id,
            is_root=proto.id == computation.root_id,
            parameter_number=proto.parameter_number if opcode == "parameter" else None,
            tuple_index=proto.tuple_index if opcode == "get-tuple-element" else None,
            control_predecessors=tuple([self.names[i] for i in proto.control_predecessor_ids]),
            attributes=attributes_of(self._inner(proto)),
        )

    def _backend_config(self, proto: Any) -> str:
        data = proto.backend_config
        if not data and proto.HasField("backend_config_payload"):
            # Newer modules keep long configurations in one list and refer to it.
            payload = proto.backend_config_payload
            data = payload.value or self.module.payloads[payload.id]
        return data.decode("utf-8", "replace") if data else ""

    def _source(self, metadata: Any) -> tuple[str, int | None]:
        if metadata.source_file:
            return metadata.source_file, metadata.source_line or None
        frame_id = metadata.stack_frame_id
        if not frame_id:
            return "", None
        index = self.module.stack_frame_index
        # Ids count from 1; 0 means none.
        location = index.file_locations[index.stack_frames[frame_id - 1].file_location_id - 1]
        return index.file_names[location.file_name_id - 1], location.line or None

    def _inner(self, proto: Any) -> Any:
        """The instruction that an async-start starts; any other instruction itself."""
        if proto.opcode == "async-start":
            return self.roots[proto.called_computation_ids[0]]
        return proto

    def _collective(self, proto: Any, opcode: str, config: str) -> Collective | None:
        if proto.opcode == "async-start":
            inner = self._inner(proto)
            return self._collective(inner, inner.opcode, config)
        if proto.is_host_transfer and not is_between_slices(proto.frontend_attributes.map):
            return None
        if proto.id not in self.collectives:
            found = describe_collective(
                opcode,
                self.shape_of[proto.id],
                [self.shape_of[i] for i in proto.operand_ids],
                groups=replica_groups(proto),
                pairs=tuple((pair.source, pair.target) for pair in proto.source_target_pairs),
                channel_id=proto.channel_id or None,
                devices=self.devices,
                backend_config=config,
            )
            assert found is not None
            self.collectives[proto.id] = found
        return self.collectives[proto.id]


def replica_groups(proto: Any) -> Groups:
    """The devices of a collective, in whichever way they are written."""
    if proto.replica_groups:
        return list_groups([group.replica_ids for group in proto.replica_groups])
    if proto.collective_device_list.replica_groups:
        return list_groups([g.replica_ids for g in proto.collective_device_list.replica_groups])
    if proto.HasField("iota_collective_device_list"):
        iota = proto.iota_collective_device_list
        return iota_groups(
            iota.num_replica_groups,
            iota.num_devices_per_group,
            iota.iota_reshape_dims,
            iota.iota_transpose_perm,
        )
    if proto.HasField("mesh_axes_replica_group_list"):
        return _mesh(proto.mesh_axes_replica_group_list)
    return ()


def _mesh(proto: Any) -> Groups:
    sizes = [axis.size for axis in proto.mesh.axes]
    axes = []
    for ref in proto.axes:
        before, part = 1, sizes[ref.mesh_axis_index]
        if ref.HasField("sub_axis_info"):
            before, part = ref.sub_axis_info.pre_size, ref.sub_axis_info.size
        axes.append((ref.mesh_axis_index, before, part))
    devices = list(proto.mesh.device_ids) or None
    if devices is None and proto.mesh.HasField("iota_transform"):
        iota = proto.mesh.iota_transform
        groups = iota_groups(1, devices_of(sizes), iota.reshape_dims, iota.transpose_perm)
        devices = list(groups[0])
    return mesh_groups(sizes, axes, devices)
