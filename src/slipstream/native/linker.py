"""Links an object file, as Numba makes it on x86-64, to an image.

Numba compiles for the large code model: every address in its code is a word of eight bytes
(R_X86_64_64), whether it points to its own sections or to a symbol elsewhere. So linking means to
lay out the sections one after another and note where those words are. An object file that has
anything else is kept as it is.

    ELF64 header ─► section headers ─► .text .rodata … laid out
                                       .symtab         where symbols lie
                                       .rela.*         which words hold addresses
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from slipstream.native.image import Image

_MAGIC = b"\x7fELF\x02\x01"
_X86_64 = 62
_SYMBOLS, _RELOCATIONS, _NO_BYTES = 2, 4, 8
_IN_MEMORY = 2
_ADDRESS = 1
"""R_X86_64_64"""

_FILE = struct.Struct("<6s10xHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")


@dataclass(frozen=True)
class _Section:
    name: str
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int

    @property
    def is_laid_out(self) -> bool:
        # Unwinding tables are for exceptions, and nothing here throws any.
        return bool(self.flags & _IN_MEMORY) and self.name != ".eh_frame"


def linked(code: bytes, entry: str) -> Image:
    """The object file's sections as one image whose entry is the function `entry`."""
    whole = Image(code, 0, (), ((entry, 0, 0),), is_object=True)
    if code[:6] != _MAGIC or struct.unpack_from("<H", code, 18)[0] != _X86_64:
        return whole
    sections = _sections(code)
    memory, places = _layout(code, sections)
    symbols = _symbols(code, sections, places)
    own: list[int] = []
    others: list[tuple[str, int, int]] = []
    for section in sections:
        if section.kind != _RELOCATIONS or section.info not in places:
            continue
        for at, info, addend in _RELOCATION.iter_unpack(_bytes(code, section)):
            name, address = symbols[info >> 32]
            place = places[section.info] + at
            if info & 0xFFFFFFFF != _ADDRESS:
                return whole
            if address is None:
                others.append((name, place, addend))
            else:
                struct.pack_into("<q", memory, place, address + addend)
                own.append(place)
    start = next(address for name, address in symbols if name == entry)
    return whole if start is None else Image(bytes(memory), start, tuple(own), tuple(others))


def _sections(code: bytes) -> list[_Section]:
    header = _FILE.unpack_from(code)
    table, count, names_at = header[6], header[12], header[13]
    rows = [_SECTION.unpack_from(code, table + i * _SECTION.size) for i in range(count)]
    names = rows[names_at][4]
    return [
        _Section(_text(code, names + name), kind, flags, offset, size, link, info, alignment)
        for name, kind, flags, _, offset, size, link, info, alignment, _ in rows
    ]


def _layout(code: bytes, sections: list[_Section]) -> tuple[bytearray, dict[int, int]]:
    """The sections needed at run time, one after another, and where each starts."""
    memory = bytearray()
    places = {}
    for index, section in enumerate(sections):
        if section.is_laid_out:
            alignment = max(section.alignment, 1)
            memory += bytes(-len(memory) % alignment)
            places[index] = len(memory)
            empty = section.kind == _NO_BYTES
            memory += bytes(section.size) if empty else _bytes(code, section)
    return memory, places


def _symbols(
    code: bytes, sections: list[_Section], places: dict[int, int]
) -> list[tuple[str, int | None]]:
    """(name, offset in the image) of each symbol; None for symbols that lie elsewhere."""
    found: list[tuple[str, int | None]] = []
    table = next(section for section in sections if section.kind == _SYMBOLS)
    names = sections[table.link].offset
    for name, _, _, index, value, _ in _SYMBOL.iter_unpack(_bytes(code, table)):
        place = places.get(index)
        found.append((_text(code, names + name), None if place is None else place + value))
    return found


def _bytes(code: bytes, section: _Section) -> bytes:
    return code[section.offset : section.offset + section.size]


def _text(code: bytes, at: int) -> str:
    return code[at : code.index(b"\0", at)].decode()
