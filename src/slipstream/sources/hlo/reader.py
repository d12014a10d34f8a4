"""Reads compiled programs: HLO text, HloProto, HloModuleProto."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slipstream.errors import BadInput
from slipstream.profile.program import Program
from slipstream.reading import DAMAGE, describe, read_input
from slipstream.sources.hlo.consistency import check_consistency
from slipstream.sources.hlo.text import program_from_text

__all__ = ["program_from_proto", "program_from_text", "read_program"]

_NEXT_STEP = (
    "write it with compiled.as_text(), or dump it with "
    "XLA_FLAGS='--xla_dump_to=dump --xla_dump_hlo_as_proto'"
)


def read_program(path: str | os.PathLike[str]) -> Program:
    """The program in a file: HLO text (`.hlo`, `.txt`) or proto (`.pb`), compressed or not.

    The content decides, not the file's name.
    """
    source = str(path)
    data = read_input(path, f"an HLO file; {_NEXT_STEP}")
    if _is_text(data):
        return program_from_text(data.decode("utf-8", "replace"), source=source)
    if not data or Path(source.removesuffix(".gz")).suffix in (".hlo", ".txt"):
        raise BadInput(
            f"{source}, byte 0: saw {bytes(data[:16])!r}, expected text that starts with "
            f"'HloModule'; {_NEXT_STEP}"
        )
    return program_from_proto(data, source=source)


def program_from_proto(
    data: bytes,
    *,
    source: str = "HLO proto",
    jaxlib_version: str | None = None,
    flags: Mapping[str, str] | None = None,
) -> Program:
    """The program in a serialized HloProto or HloModuleProto; BadInput if there is none."""
    from slipstream.sources.hlo.proto import ModuleReader

    module = _parse_module(data, source)
    try:
        program = ModuleReader(module).program(jaxlib_version, flags or {})
        check_consistency(program)
        return program
    except DAMAGE as error:
        raise BadInput(
            f"{source}, {len(data)} bytes: program {module.name!r:.80} contradicts itself "
            f"({describe(error)}), expected every id to name an instruction or "
            f"computation of it; {_NEXT_STEP}"
        ) from error


def _parse_module(data: bytes, source: str) -> Any:
    from google.protobuf.message import DecodeError

    from slipstream.sources.proto_schema import message

    # An HloProto starts with a module, a module with its name: only one of them parses.
    for kind in ("HloProto", "HloModuleProto"):
        try:
            parsed = message(kind).FromString(data)
        except DecodeError:
            continue
        module = parsed.hlo_module if kind == "HloProto" else parsed
        if module.computations:
            return module
    at = _bad_byte(data)
    seen = f"the data ends inside the field that starts with {bytes(data[at : at + 8])!r}"
    if at == len(data):
        seen = f"fields that are not a program, the first of them {bytes(data[:12])!r}"
    raise BadInput(
        f"{source}, byte {at} of {len(data)}: saw {seen}, "
        f"expected an HloProto or HloModuleProto with computations; {_NEXT_STEP}"
    )


def _bad_byte(data: bytes) -> int:
    """Where the outermost message stops being valid, for a person with a hex viewer."""
    at = 0
    while at < len(data):
        tag, after = _varint(data, at)
        size, end = 0, after
        if tag & 7 == 0:
            _, end = _varint(data, after)
        elif tag & 7 == 2:
            size, end = _varint(data, after)
        elif tag & 7 in (1, 5):
            size = 8 if tag & 7 == 1 else 4
        else:
            return at
        if tag < 8 or end < 0 or end + size > len(data):
            return at
        at = end + size
    return at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A variable-length integer and where it ends; -1 if the data ends first."""
    value = 0
    for place in range(10):
        if at < 0 or at + place >= len(data):
            break
        value |= (data[at + place] & 0x7F) << (7 * place)
        if data[at + place] < 0x80:
            return value, at + place + 1
    return 0, -1


def _is_text(data: bytes) -> bool:
    head = data[:4096].lstrip()
    return head.startswith((b"HloModule", b"//", b"/*")) and b"\x00" not in head
