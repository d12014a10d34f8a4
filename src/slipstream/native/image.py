"""Machine code as it lies in memory, except for addresses that only the process knows.

    header      entry, number of own addresses, length of the symbols' text, kind
    own         offsets of words that are relative to the image's start
    symbols     lines of `name offset addend`: words that hold a symbol's address
    code        the bytes

Loading an image means to map it, fill in those words and make it executable. For processors that
`linker` doesn't support, the code is an object file, and LLVM loads it.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from dataclasses import dataclass

_HEADER = struct.Struct("<4q")
_WORD = struct.Struct("<q")
# Numba's wrapper refers to these in case of an exception, which can't happen here.
_NEVER_CALLED = ("numba_", "NRT_")
_HELD: list[object] = []
"""mappings and engines that must live as long as the process"""


@dataclass(frozen=True, slots=True)
class Image:
    """The machine code of one function."""

    code: bytes
    entry: int
    own: tuple[int, ...]
    symbols: tuple[tuple[str, int, int], ...]
    is_object: bool = False
    """if so, `code` is an object file, and `symbols` names the function in it"""

    def to_bytes(self) -> bytes:
        text = "\n".join(f"{name} {at} {addend}" for name, at, addend in self.symbols).encode()
        header = _HEADER.pack(self.entry, len(self.own), len(text), self.is_object)
        return header + struct.pack(f"<{len(self.own)}q", *self.own) + text + self.code

    @classmethod
    def from_bytes(cls, data: bytes) -> Image:
        entry, count, length, is_object = _HEADER.unpack_from(data)
        own = struct.unpack_from(f"<{count}q", data, _HEADER.size)
        at = _HEADER.size + 8 * count
        rows = (row.split() for row in data[at : at + length].decode().splitlines())
        symbols = tuple((name, int(place), int(addend)) for name, place, addend in rows)
        if not 0 <= entry <= len(data) - at - length:
            raise ValueError("the entry lies outside of the code")
        return cls(data[at + length :], entry, own, symbols, bool(is_object))

    def load(self) -> int:
        """The address of the function in this process."""
        return _load_object(self) if self.is_object else self._map()

    def _map(self) -> int:
        # Writable while it is filled in, executable afterwards, never both.
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        prot = mmap.PROT_READ | mmap.PROT_WRITE
        memory = mmap.mmap(-1, len(self.code), flags=flags, prot=prot)
        memory[:] = self.code
        _HELD.append(first := ctypes.c_char.from_buffer(memory))
        base = ctypes.addressof(first)
        for at in self.own:
            _WORD.pack_into(memory, at, _WORD.unpack_from(memory, at)[0] + base)
        for name, at, addend in self.symbols:
            _WORD.pack_into(memory, at, address_of(name) + addend)
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        if protect(base, len(self.code), mmap.PROT_READ | mmap.PROT_EXEC):
            raise OSError(
                ctypes.get_errno(), "the system does not allow memory to be made executable"
            )
        return base + self.entry


def address_of(symbol: str) -> int:
    """The address of a symbol of Python or the C library in this process."""
    if symbol.startswith(_NEVER_CALLED):
        symbol = "PyErr_Clear"
    library = ctypes.pythonapi if symbol.startswith(("Py", "_Py")) else ctypes.CDLL(None)
    return ctypes.addressof(ctypes.c_char.in_dll(library, symbol))


def _load_object(image: Image) -> int:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    for name in ("memset", "memcpy", "memmove", "numba_gil_ensure", "numba_gil_release"):
        llvm.add_symbol(name, address_of(name))
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(image.code))
    engine.finalize_object()
    _HELD.append(engine)
    address: int = engine.get_function_address(image.symbols[0][0])
    return address
