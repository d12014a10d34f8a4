"""XLA's flags are the fields of `DebugOptions`: read from a jaxlib's protobuf descriptor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slipstream.errors import BadInput
from slipstream.flags.catalogue.jaxlib_library import FileDescriptors

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import (
        DescriptorProto,
        FieldDescriptorProto,
        FileDescriptorProto,
    )

OPTIONS = "DebugOptions"
_BUILD_OPTIONS, _DEBUG_OPTIONS = 3, 3
"""CompileOptionsProto.executable_build_options, ExecutableBuildOptionsProto.debug_options"""


@dataclass(frozen=True)
class DebugOption:
    """One field of `DebugOptions`."""

    name: str
    kind: str
    enum_values: tuple[str, ...]
    is_deprecated: bool

    @property
    def in_compiler_options(self) -> bool:
        """`compiler_options` can set all fields but maps and messages (XLA's `ApplyOption`)."""
        return self.kind.removeprefix("repeated ") not in ("map", "message")


class DebugOptionsDescriptor:
    """`DebugOptions` of one jaxlib: its fields, reserved names and defaults."""

    def __init__(self, found: FileDescriptors) -> None:
        from google.protobuf import descriptor_pb2

        read = descriptor_pb2.FileDescriptorProto.FromString
        file = read(found.file)
        options = [message for message in file.message_type if message.name == OPTIONS]
        if not options:
            raise BadInput(f"the descriptor of xla.proto has no message {OPTIONS}")
        self._options = options[0]
        self._package = file.package
        self._enums = _enums([file, *map(read, found.imports)])

    def fields(self) -> dict[str, DebugOption]:
        """Every field, by name."""
        return {field.name: self._field(field) for field in self._options.field}

    def reserved(self) -> frozenset[str]:
        """Names of removed fields."""
        return frozenset(self._options.reserved_name)

    def defaults(self, compile_options: bytes) -> dict[str, str]:
        """The value of each field in a serialized `CompileOptionsProto`, as text."""
        build = _submessage(compile_options, _BUILD_OPTIONS)
        serialized = _submessage(build, _DEBUG_OPTIONS)
        message = self._message_class().FromString(serialized)
        return {
            field.name: _text(getattr(message, field.name), self._enums.get(field.type_name, {}))
            for field in self._options.field
            if field.name in message.DESCRIPTOR.fields_by_name
        }

    def _field(self, field: FieldDescriptorProto) -> DebugOption:
        enum = self._enums.get(field.type_name, {})
        kind = _kind(field, self._options)
        return DebugOption(field.name, kind, tuple(enum.values()), field.options.deprecated)

    def _message_class(self) -> Any:
        """A message class for `DebugOptions` alone: no submessages, and enums as numbers."""
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

        file = descriptor_pb2.FileDescriptorProto(
            name="options.proto", package=self._package, syntax="proto3"
        )
        options = file.message_type.add()
        options.CopyFrom(self._options)
        kept = [field for field in options.field if _is_self_contained(field, options)]
        del options.field[:], options.oneof_decl[:], options.enum_type[:]
        options.field.extend(kept)
        entries = [entry for entry in options.nested_type if entry.options.map_entry]
        del options.nested_type[:]
        options.nested_type.extend(entries)
        for field in [*options.field, *(field for entry in entries for field in entry.field)]:
            _make_plain(field)
        pool = descriptor_pool.DescriptorPool()
        pool.Add(file)
        return message_factory.GetMessageClass(
            pool.FindMessageTypeByName(f"{file.package}.{OPTIONS}")
        )


def _enums(files: Sequence[FileDescriptorProto]) -> dict[str, dict[int, str]]:
    """The members of each enum, by its full name, such as `.xla.DebugOptions.ShapeChecks`."""
    scopes = [(f".{file.package}", file.enum_type) for file in files]
    for file in files:
        scopes += [(f".{file.package}.{m.name}", m.enum_type) for m in file.message_type]
    return {
        f"{scope}.{enum.name}": {value.number: value.name for value in enum.value}
        for scope, enums in scopes
        for enum in enums
    }


def _is_map(field: FieldDescriptorProto, options: DescriptorProto) -> bool:
    entry = field.type_name.rpartition(".")[2]
    nested = [message for message in options.nested_type if message.name == entry]
    return bool(nested) and nested[0].options.map_entry


def _kind(field: FieldDescriptorProto, options: DescriptorProto) -> str:
    if field.type == field.TYPE_MESSAGE and _is_map(field, options):
        return "map"
    name: str = field.Type.Name(field.type).removeprefix("TYPE_").lower()
    return f"repeated {name}" if field.label == field.LABEL_REPEATED else name


def _is_self_contained(field: FieldDescriptorProto, options: DescriptorProto) -> bool:
    return field.type != field.TYPE_MESSAGE or _is_map(field, options)


def _make_plain(field: FieldDescriptorProto) -> None:
    field.ClearField("oneof_index")
    field.ClearField("proto3_optional")
    if field.type == field.TYPE_ENUM:
        field.type = field.TYPE_INT32
        field.ClearField("type_name")


def _submessage(data: bytes, number: int) -> bytes:
    """The bytes of field `number`; empty if it is absent."""
    return b"".join(field.data for field in _wire_fields(data) if field.field_number == number)


def _wire_fields(data: bytes) -> Any:
    from google.protobuf import unknown_fields
    from google.protobuf.empty_pb2 import Empty

    return unknown_fields.UnknownFieldSet(Empty.FromString(data))


def _text(value: Any, enum: Mapping[int, str]) -> str:
    """A value as it is written in `XLA_FLAGS`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return enum.get(value, str(value))
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, str):
        return value
    if hasattr(value, "items"):
        return ",".join(f"{key}={item}" for key, item in sorted(value.items()))
    return ",".join(_text(item, enum) for item in value)
