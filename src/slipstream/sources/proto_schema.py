"""Protobuf message classes, built at run time from our own tables.

The readers need a few dozen of the several hundred messages that XLA and its profiler define.
`proto_tables.py` lists the fields we use with their numbers; every other field is skipped while
reading and kept when a message is written back. So we need no `.proto` compiler, no generated
files and no copy of XLA's definitions, and protobuf's C core still does the parsing.

    HloModuleProto = message("HloModuleProto")
    module = HloModuleProto.FromString(data)

Nothing is built, and protobuf is not imported, until `message` is first called.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from slipstream.did_you_mean import did_you_mean
from slipstream.sources.proto_tables import PROFILER, XLA

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool

_TABLES = {"xla": XLA, "tensorflow.profiler": PROFILER}
_SCALARS = frozenset(
    ("string", "bytes", "bool", "double", "float", "int32", "int64", "uint32", "uint64")
)


@cache
def message(name: str) -> Any:
    """The message class named `name`; nested ones are `Outer.Inner`."""
    from google.protobuf import message_factory

    pool = _pool()
    for package in _TABLES:
        try:
            descriptor = pool.FindMessageTypeByName(f"{package}.{name}")
        except KeyError:
            continue
        return message_factory.GetMessageClass(descriptor)
    guess = did_you_mean(name, message_names(), most=3)
    raise KeyError(f"there is no message {name!r} in the schema tables; {guess}".rstrip("; "))


def message_names() -> list[str]:
    """Every name that `message` accepts."""
    return [name for table in _TABLES.values() for name, _ in _paragraphs(table)]


class _Field(NamedTuple):
    name: str
    number: int
    type: str
    repeated: bool
    optional: bool
    oneof: str


def _paragraphs(table: str) -> Iterator[tuple[str, list[_Field]]]:
    for paragraph in table.strip().split("\n\n"):
        name, *lines = paragraph.split("\n")
        yield name, [_field(line) for line in lines]


def _field(line: str) -> _Field:
    name, number, kind, *oneof = line.split()
    return _Field(
        name,
        int(number),
        kind.rstrip("*?"),
        repeated=kind.endswith("*"),
        optional=kind.endswith("?"),
        oneof=oneof[0].lstrip("@") if oneof else "",
    )


@cache
def _pool() -> DescriptorPool:
    # Not the default pool: it may already have the real definitions (if the process imported
    # TensorFlow or xprof), and two definitions of one name conflict.
    from google.protobuf import descriptor_pb2, descriptor_pool

    pool = descriptor_pool.DescriptorPool()
    for package, table in _TABLES.items():
        file = descriptor_pb2.FileDescriptorProto(
            name=f"slipstream/{package}.proto", package=package, syntax="proto3"
        )
        for name, fields in _paragraphs(table):
            _declare(file, name, fields)
        pool.Add(file)
    return pool


def _declare(file: FileDescriptorProto, name: str, fields: list[_Field]) -> None:
    outer, _, inner = name.partition(".")
    if inner:
        target = next(m for m in file.message_type if m.name == outer).nested_type.add(name=inner)
    else:
        target = file.message_type.add(name=name)
    for field in fields:
        if field.type.startswith("map<"):
            _declare_map(target, f".{file.package}.", name, field)
        else:
            _declare_field(target, f".{file.package}.", field)


def _declare_field(target: DescriptorProto, prefix: str, field: _Field) -> None:
    proto = target.field.add(name=field.name, number=field.number)
    proto.label = proto.LABEL_REPEATED if field.repeated else proto.LABEL_OPTIONAL
    if field.type in _SCALARS:
        proto.type = getattr(proto, f"TYPE_{field.type.upper()}")
    else:
        proto.type = proto.TYPE_MESSAGE
        proto.type_name = prefix + field.type
    # proto3 expresses an optional scalar as a oneof with one member.
    oneof = f"_{field.name}" if field.optional else field.oneof
    proto.proto3_optional = field.optional
    if oneof:
        names = [declared.name for declared in target.oneof_decl]
        if oneof not in names:
            target.oneof_decl.add(name=oneof)
            names.append(oneof)
        proto.oneof_index = names.index(oneof)


def _declare_map(target: DescriptorProto, prefix: str, owner: str, field: _Field) -> None:
    """A map is a repeated nested message with fields `key` and `value`."""
    key, value = field.type.removeprefix("map<").removesuffix(">").split(",")
    camel = "".join(part.capitalize() for part in field.name.split("_"))
    entry = target.nested_type.add(name=f"{camel}Entry")
    entry.options.map_entry = True
    _declare_field(entry, prefix, _Field("key", 1, key, False, False, ""))
    _declare_field(entry, prefix, _Field("value", 2, value, False, False, ""))
    proto = target.field.add(name=field.name, number=field.number)
    proto.label, proto.type = proto.LABEL_REPEATED, proto.TYPE_MESSAGE
    proto.type_name = f"{prefix}{owner}.{camel}Entry"
