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
from functools import cache
from typing import Any

import numpy as np

from slipstream.native import Native, _passed

PAGE = mmap.PAGESIZE
FILLING = b"\xa5" * PAGE
MOST_PLACES = 4000
"""kept for arrays of the same size; a process may not have many mappings"""
RIGHT, LEFT = "right", "left"


class OutsideArray(AssertionError):
    """Native code wrote outside of an array."""


class Region:
    """Some pages between two guard pages."""

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
    """Room for an array at one end of a region; the rest of the region is filled."""

    __slots__ = ("address", "array", "filled", "filling", "memory")

    def __init__(self, count: int, dtype: Any, side: str) -> None:
        size = count * dtype.itemsize
        region = Region(max(1, -(-size // PAGE)) * PAGE)
        rest = region.room - size
        before = rest if side == RIGHT else 0
        self.memory = region.memory
        self.address = region.address + before
        self.array = np.frombuffer(region.memory, dtype, count, PAGE + before)
        at = PAGE + (0 if side == RIGHT else size)
        self.filled, self.filling = slice(at, at + rest), FILLING[:rest]
        region.memory[self.filled] = self.filling

    def is_intact(self) -> bool:
        return bool(self.memory[self.filled] == self.filling)


class Guards:
    """Calls native functions with guarded copies of their arrays, and remembers which."""

    def __init__(self, side: str) -> None:
        self.side = side
        self.called: set[str] = set()
        """names of the functions that were called"""
        self._free: dict[tuple[Any, int], list[Place]] = {}
        self._settled: dict[int, Place] = {}
        """arrays that lie between guard pages for good, by their identity"""
        self._made = 0
        self._turn = threading.Lock()

    def array(self, like: Any) -> Any:
        """An array of the same shape that lies between guard pages for good, and is not copied."""
        place = Place(like.size, like.dtype, self.side)
        made = place.array.reshape(like.shape)
        made[...] = like
        self._settled[id(made)] = place
        return made

    def call(self, function: Native, *values: Any) -> Any:
        """As `Native.__call__`."""
        function.prepare()
        self.called.add(name_of(function))
        # One call at a time: threads may share an array, and each copies it back as a whole.
        with self._turn:
            return self._call(function, values)

    def _call(self, function: Native, values: tuple[Any, ...]) -> Any:
        copies: list[tuple[Any, Place]] = []
        passed = []
        for value, kind in zip(values, function.arguments, strict=True):
            if kind[-1] != "*":
                passed.append(_passed(value, kind))
                continue
            place = self._settled.get(id(value))
            if place is None:
                array = np.frombuffer(value, value._type_) if _is_ctypes(value) else value.ravel()
                place = self._place(array)
                place.array[...] = array
                copies.append((array, place))
            passed.append(place.address)
        result = function._call(*passed)
        for array, place in copies:
            if not place.is_intact():
                raise OutsideArray(f"{name_of(function)} wrote outside of an array ({self.side})")
            if array.flags.writeable:
                array[...] = place.array
            self._free.setdefault((array.dtype, array.size), []).append(place)
        return result

    def _place(self, array: Any) -> Place:
        free = self._free.setdefault((array.dtype, array.size), [])
        try:
            return free.pop()
        except IndexError:
            pass
        self._made += 1
        if self._made % MOST_PLACES == 0:
            self._free.clear()
        return Place(array.size, array.dtype, self.side)


def _is_ctypes(value: Any) -> bool:
    return isinstance(value, ctypes.Array)


@cache
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
