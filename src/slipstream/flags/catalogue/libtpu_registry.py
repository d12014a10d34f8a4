"""The flags of a libtpu, read from its memory: names, types, defaults, and which values parse.

libtpu has no list of its flags: it was built without their descriptions, so that even `--helpfull`
prints nothing. But each flag is an object of Abseil's class `FlagImpl` in the data segment, and
all of them start with the same pointer to a table of methods:

    word  0       1     2 3       4           6      9
          methods name  file      operations  kinds  default: a value, or a function that makes it

The operations of a flag's type parse and print values, as libtpu does when it starts. This module
loads a library and calls into it, so it runs in a process of its own: `read_registry`.
"""

from __future__ import annotations

import ctypes
import json
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from slipstream.errors import BadInput
from slipstream.flags.catalogue.libtpu_flag import ENUMS, LibtpuFlag

KNOWN = b"\0xla_tpu_scoped_vmem_limit_kib\0"
"""a flag that every libtpu has"""
_NAME, _OPERATIONS, _KINDS, _DEFAULT, _WORDS = 1, 4, 6, 9, 10
_GENERATED = 1
"""in the second byte of the kinds: the default comes from a function"""
_TYPE, _PARSE, _UNPARSE = 6, 7, 8
_SMALL = 1024
"""bytes for a value of any type"""
_NUMBERS = {"i": "int32", "l": "int64", "j": "uint32", "m": "uint64", "t": "uint16"}
_TYPES = {"b": "bool", "f": "float", "d": "float", **_NUMBERS}
"""C++ types by their mangled names"""
_NONSENSE = "qzx"
_OTHERS = ("0", "77", "off", "")
"""values to try besides the words of an enum"""
_LISTED = re.compile(
    r"(?:options(?: are)?|values are|one of|must be):? \{?(.*?)\}?\.?(?: Integer.*)?$", re.DOTALL
)
"""how errors list the words of an enum"""
_TIMEOUT_S = 120


def read_registry(path: Path) -> list[LibtpuFlag]:
    """All flags of the library, by name; BadInput if it can't be read this way."""
    command = [sys.executable, "-m", __name__, str(path)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=True)
        rows = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise BadInput(f"the flags of {path} can't be read: {error}") from None
    return [LibtpuFlag.from_row(name, row) for name, row in sorted(rows.items())]


@dataclass(frozen=True)
class FlagObject:
    """One flag in memory."""

    words: tuple[int, ...]

    @property
    def name(self) -> str:
        return ctypes.string_at(self.words[_NAME]).decode()

    @property
    def type_name(self) -> str:
        """Mangled; unnamed types have a number."""
        info = _operation(self.words)(_TYPE, None, None, None)
        return ctypes.string_at(ctypes.c_uint64.from_address(info + 8).value).decode()

    @cached_property
    def default(self) -> str:
        return self._printed(self._value())

    def parsed(self, text: str) -> tuple[str | None, str]:
        """A text as a value, printed again, or None and an error."""
        value, error = self._value(), ctypes.create_string_buffer(_SMALL)
        data = ctypes.create_string_buffer(text.encode())
        view = ctypes.create_string_buffer(struct.pack("<QQ", ctypes.addressof(data), len(text)))
        done = _operation(self.words)(_PARSE, _at(view), _at(value), _at(error))
        return (self._printed(value) if done else None), _string(error)

    def _value(self) -> ctypes.Array[ctypes.c_char]:
        value = ctypes.create_string_buffer(_SMALL)
        if self.words[_KINDS] >> 8 & 0xFF == _GENERATED:
            ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.words[_DEFAULT])(_at(value))
        else:
            ctypes.memmove(value, struct.pack("<Q", self.words[_DEFAULT]), 8)
        return value

    def _printed(self, value: ctypes.Array[ctypes.c_char]) -> str:
        text = ctypes.create_string_buffer(_SMALL)
        _operation(self.words)(_UNPARSE, _at(value), _at(text), None)
        return _string(text)


def flag_objects(path: Path) -> list[FlagObject]:
    """Load a library, and find its flags."""
    ctypes.CDLL(str(path))
    segments = list(_segments(path))
    (name,) = [
        start + at + 1 for start, data, _ in segments if (at := bytes(data).find(KNOWN)) >= 0
    ]
    writable = [bytes(data) for _, data, is_writable in segments if is_writable]
    (methods,) = [data[at - 8 : at] for data in writable for at in _places(data, _word(name))]
    return [
        FlagObject(struct.unpack_from(f"<{_WORDS}Q", data, at))
        for data in writable
        for at in _places(data, methods)
    ]


def described(flag: FlagObject) -> LibtpuFlag:
    """A flag with the kind of its values, by trying some."""
    kind, words = _kind(flag)
    # A set of words is printed in another order by every process.
    default = ",".join(sorted(flag.default.split(","))) if kind == "other" else flag.default
    return LibtpuFlag(flag.name, kind, default, words)


def _kind(flag: FlagObject) -> tuple[str, tuple[str, ...]]:
    if flag.type_name in _TYPES:
        return _TYPES[flag.type_name], ()
    base, words = _base(flag)
    if base in ("string", "message", "other"):
        return base, ()
    also = [word for word in ("auto", "") if word not in words and _takes(flag, word)]
    return " or ".join([base, *(word or "empty" for word in also)]), words


def _base(flag: FlagObject) -> tuple[str, tuple[str, ...]]:
    nonsense, error = flag.parsed(_NONSENSE)
    if nonsense == _NONSENSE:
        return ("string" if _takes(flag, "+1") else "other"), ()  # a regular expression
    if nonsense is not None or "Message type" in error or "xpected identifier" in error:
        return "message", ()
    words = tuple(word for word in _listed(error) if _takes(flag, word))
    if words:
        return _enum(flag, words), words
    tried = {text: flag.parsed(text)[0] for text in ("true", "1", "-1", "1.5", "3s", "4294967296")}
    if tried["true"] == "true" and tried["1"] == "true":
        return "bool", ()
    if tried["1.5"] == "1.5":
        return "float", ()
    if tried["1"] == "1" and _takes(flag, "65536"):
        size = 32 if tried["4294967296"] is None else 64
        return f"{'u' if tried['-1'] is None else ''}int{size}", ()
    return ("duration" if tried["3s"] == "3s" else "other"), ()


def _enum(flag: FlagObject, words: tuple[str, ...]) -> str:
    """The form of an enum that agrees with how its words may be written."""
    spelt = {spelling for word in words for spelling in (word.upper(), word.lower(), word.title())}
    for form in ENUMS:
        known = LibtpuFlag(flag.name, form, "", words)
        if all(known.accepts(one) == _takes(flag, one) for one in (*words, *spelt, *_OTHERS)):
            return form
    return "other"


def _takes(flag: FlagObject, text: str) -> bool:
    return flag.parsed(text)[0] is not None


def _listed(error: str) -> list[str]:
    listed = _LISTED.search(error)
    return [word.strip(" '\"") for word in re.split(r",| or ", listed[1])] if listed else []


def _segments(path: Path) -> Iterator[tuple[int, memoryview, bool]]:
    """The library's readable memory: address, content, whether it is writable."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, rights, *_, name = line.split(maxsplit=5)
        if name.strip() == str(path.resolve()) and "r" in rights:
            start, end = (int(part, 16) for part in span.split("-"))
            content = memoryview((ctypes.c_char * (end - start)).from_address(start))
            yield start, content, "w" in rights


def _places(data: bytes, word: bytes) -> Iterator[int]:
    at = data.find(word)
    while at >= 0:
        if at % 8 == 0:
            yield at
        at = data.find(word, at + 1)


def _word(value: int) -> bytes:
    return struct.pack("<Q", value)


def _at(buffer: ctypes.Array[ctypes.c_char]) -> int:
    return ctypes.addressof(buffer)


def _operation(words: tuple[int, ...]) -> ctypes._FuncPointer:
    signature = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int, *[ctypes.c_void_p] * 3)
    return signature(words[_OPERATIONS])


def _string(buffer: ctypes.Array[ctypes.c_char]) -> str:
    """A `std::string` of libtpu: up to 22 bytes in place and their number in the last byte, or a
    pointer and a length."""
    raw = buffer.raw[:24]
    if raw[23] < 0x80:
        return raw[: raw[23]].decode(errors="replace")
    start, length, _ = struct.unpack("<3Q", raw)
    return ctypes.string_at(start, length).decode(errors="replace")


def main() -> None:
    """Print the flags of the library in the first argument."""
    flags = [described(flag) for flag in flag_objects(Path(sys.argv[1]).resolve())]
    print(json.dumps({flag.name: flag.row() for flag in flags}))


if __name__ == "__main__":
    main()
