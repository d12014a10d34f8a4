"""Native functions with every array between two pages that nobody may touch.

    │ guard │ 0xA5 0xA5 … the array │ guard │      right: what is read or written behind it ends
    │ guard │ the array … 0xA5 0xA5 │ guard │      left: what is read or written before it ends

`guarded` replaces the one place where native functions are called. It copies each array between
guard pages, calls the function, and copies the arrays back. An access outside of an array ends the
process at once (SIGSEGV), or changes the filling, which is an error.
"""

from __future__ import annotations

import ctypes
import mmap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from slipstream.native import Native, _passed

PAGE = mmap.PAGESIZE
FILLING = b"\xa5" * PAGE
RIGHT, LEFT = "right", "left"


class OutsideArray(AssertionError):
    """Native code wrote outside of an array."""


class Region:
    """Some pages between two guard pages, of which an array takes one end."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.memory = mmap.mmap(-1, room + 2 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        first = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.address = first + PAGE
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        for guard in (first, self.address + room):
            if protect(guard, PAGE, 0):
                raise OSError(ctypes.get_errno(), "mprotect")


class Place:
    """An array's place in a region, and the filling of what the array leaves of it."""

    __slots__ = ("address", "filled", "region", "size")

    def __init__(self, region: Region, size: int, side: str) -> None:
        rest = region.room - size
        self.region, self.size = region, size
        self.address = region.address + (rest if side == RIGHT else 0)
        at = PAGE + (0 if side == RIGHT else size)
        self.filled = slice(at, at + rest)
        region.memory[self.filled] = FILLING[:rest]

    def is_intact(self) -> bool:
        return self.region.memory[self.filled] == FILLING[: self.region.room - self.size]


class Guards:
    """Calls native functions with guarded copies of their arrays, and remembers which."""

    def __init__(self, side: str) -> None:
        self.side = side
        self.called: set[str] = set()
        """names of the functions that were called"""
        self._free: dict[int, list[Region]] = {}
        self._lock = threading.Lock()
        self._settled: dict[int, Region] = {}
        """arrays that lie between guard pages already, by address"""

    def array(self, like: Any) -> Any:
        """An array of the same shape that lies between guard pages for good, and is not copied."""
        place = self._place(like.nbytes)
        self._settled[place.address] = place.region
        at = place.address - place.region.address + PAGE
        made = np.frombuffer(place.region.memory, like.dtype, like.size, at).reshape(like.shape)
        made[...] = like
        return made

    def call(self, function: Native, *values: Any) -> Any:
        """As `Native.__call__`."""
        function.prepare()
        self.called.add(name_of(function))
        copies: list[tuple[Any, int, Place]] = []
        passed = []
        for value, kind in zip(values, function.arguments, strict=True):
            own = _passed(value, kind)
            if kind.endswith("*") and own not in self._settled:
                place = self._place(_size(value))
                ctypes.memmove(place.address, own, place.size)
                copies.append((value, own, place))
                own = place.address
            passed.append(own)
        result = function._call(*passed)
        for value, own, place in copies:
            if not place.is_intact():
                raise OutsideArray(f"{name_of(function)} wrote outside of an array ({self.side})")
            if isinstance(value, ctypes.Array) or value.flags.writeable:
                ctypes.memmove(own, place.address, place.size)
        with self._lock:
            for _, _, place in copies:
                self._free[place.region.room].append(place.region)
        return result

    def _place(self, size: int) -> Place:
        room = max(1, -(-size // PAGE)) * PAGE
        with self._lock:
            free = self._free.setdefault(room, [])
            region = free.pop() if free else None
        return Place(region or Region(room), size, self.side)


def _size(value: Any) -> int:
    return ctypes.sizeof(value) if isinstance(value, ctypes.Array) else value.nbytes


def name_of(function: Native) -> str:
    return f"{function.python.__module__}.{function.python.__name__}{function.signature}"


@contextmanager
def guarded(side: str) -> Iterator[Guards]:
    """Within it, native functions get guarded copies of their arrays."""
    guards = Guards(side)
    original = Native.__call__

    def call(self: Native, *values: Any) -> Any:
        return guards.call(self, *values)

    Native.__call__ = call  # type: ignore[method-assign]
    try:
        yield guards
    finally:
        Native.__call__ = original  # type: ignore[method-assign]
