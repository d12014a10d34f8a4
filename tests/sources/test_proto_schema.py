import mmap
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto
from google.protobuf.descriptor_pb2 import FileDescriptorProto as File
from google.protobuf.message import DecodeError

from slipstream.sources import proto_schema
from slipstream.sources.proto_schema import message, message_names

FILES = {
    "xla": (
        "xla/service/hlo.proto",
        "xla/xla_data.proto",
        "xla/pjrt/proto/compile_options.proto",
    ),
    "tensorflow.profiler": (
        "tsl/profiler/protobuf/xplane.proto",
        "tsl/profiler/protobuf/profiled_instructions.proto",
    ),
}


def test_an_unknown_message_names_near_ones() -> None:
    with pytest.raises(KeyError, match="HloModuleProto"):
        message("HloModulProto")


def test_every_message_can_be_built() -> None:
    for name in message_names():
        assert message(name)().ByteSize() == 0


def test_fields_that_are_not_in_the_table_survive() -> None:
    unknown = b"\xfa\x3f\x03abc"  # field 1023
    data = message("OpMetadata")(op_name="f").SerializeToString() + unknown
    assert message("OpMetadata").FromString(data).SerializeToString() == data


def test_a_cost_file_in_text() -> None:
    costs = message("ProfiledInstructionsProto")()
    text_format.Parse('costs { name: "all-gather-start" cost_us: 12.5 }', costs)
    assert [(cost.name, cost.cost_us) for cost in costs.costs] == [("all-gather-start", 12.5)]


def test_a_stat_has_one_value() -> None:
    stat = message("XStat")(str_value="a")
    stat.int64_value = 3
    assert stat.WhichOneof("value") == "int64_value"


def test_importing_is_cheap() -> None:
    code = (
        "import sys, slipstream.sources.proto_schema, slipstream.sources.hlo.reader; "
        "print([m for m in ('google.protobuf', 'numpy', 'jax') if m in sys.modules])"
    )
    source = str(Path(proto_schema.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": source}
    )
    assert done.stdout.strip() == "[]", done.stderr


def true_messages(library: Path) -> dict[str, DescriptorProto]:
    """The definitions that jaxlib carries inside its library, by package and name."""
    found: dict[str, DescriptorProto] = {}
    with library.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        for package, names in FILES.items():
            for name in names:
                add_messages(found, f"{package}.", file_descriptor(data, name).message_type)
    return found


def file_descriptor(data: mmap.mmap, name: str) -> File:
    key = b"\x0a" + bytes([len(name)]) + name.encode()
    at = data.find(key)
    while at >= 0:
        end = end_of_fields(data, at)
        try:
            file = File.FromString(data[at:end])
        except DecodeError:
            file = File()
        if file.message_type:
            return file
        at = data.find(key, at + 1)
    raise AssertionError(f"{name} is not in the library")


def end_of_fields(data: mmap.mmap, at: int) -> int:
    """Where the fields of a file descriptor end; its length isn't written anywhere."""
    while data[at] in (0x0A, 0x12, 0x1A, 0x22, 0x2A, 0x32, 0x3A, 0x42, 0x4A, 0x62):
        size, shift, place = 0, 0, at + 1
        while True:
            size |= (data[place] & 0x7F) << shift
            shift, place = shift + 7, place + 1
            if data[place - 1] < 0x80:
                break
        at = place + size
    return at


def add_messages(found: dict[str, DescriptorProto], prefix: str, messages: object) -> None:
    for proto in messages:  # type: ignore[attr-defined]
        found[prefix + proto.name] = proto
        add_messages(found, f"{prefix}{proto.name}.", proto.nested_type)


def test_field_numbers_are_those_of_the_installed_xla() -> None:
    jaxlib = pytest.importorskip("jaxlib")
    true = true_messages(Path(jaxlib.__file__).parent / "libjax_common.so")
    checked = 0
    for name in message_names():
        ours = message(name).DESCRIPTOR
        theirs = {field.name: field for field in true[ours.full_name].field}
        for field in ours.fields:
            real = theirs[field.name]
            enum = real.type == FieldDescriptorProto.TYPE_ENUM
            kind = FieldDescriptorProto.TYPE_INT32 if enum else real.type
            repeated = real.label == FieldDescriptorProto.LABEL_REPEATED
            assert (field.number, field.type, field.is_repeated) == (real.number, kind, repeated)
            checked += 1
    assert checked > 200
