"""Shapes of arrays and tuples in a compiled program: `bf16[8,1024]{1,0:S(5)}`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

# Bits per element.  Tokens and opaque values occupy no memory that can be counted.
BITS: dict[str, int] = {
    "pred": 8,
    **{f"{kind}{bits}": bits for kind in "su" for bits in (1, 2, 4, 8, 16, 32, 64)},
    **{f"f{bits}": bits for bits in (16, 32, 64)},
    "bf16": 16,
    "c64": 64,
    "c128": 128,
    "f8e5m2": 8,
    "f8e4m3": 8,
    "f8e4m3fn": 8,
    "f8e4m3b11fnuz": 8,
    "f8e3m4": 8,
    "f8e5m2fnuz": 8,
    "f8e4m3fnuz": 8,
    "f8e8m0fnu": 8,
    "f6e3m2fn": 6,
    "f6e2m3fn": 6,
    "f4e2m1fn": 4,
    "token": 0,
    "opaque": 0,
}

HOST_MEMORY = 5
MEMORIES = {
    0: "HBM",
    1: "VMEM",
    2: "semaphores",
    3: "CMEM",
    4: "SMEM",
    5: "host",
    6: "registers",
    7: "SparseCore stack",
    8: "SparseCore semaphores",
    9: "pinned HBM",
    10: "SparseCore tile semaphores",
}
"""memory spaces by number, as XLA:TPU uses them; on GPUs only 0 and 5 occur

JAX (`tpu_custom_call.py`) and XProf (`hlo_to_memory_analysis.cc` of github.com/openxla/xprof) name
them; XProf calls 2 `Sflag` and 6, which holds scalars, `Workspace Register`."""
DEVICE_MEMORIES = (0, 7, 9)
"""memory spaces that are parts of HBM"""
_DEEPEST = 64
"""tuples inside tuples"""


@dataclass(frozen=True, slots=True)
class Shape:
    """The type of one value: an array, or a tuple of shapes.

    `dtype` is `"tuple"` for tuples.  `layout` lists dimensions from the fastest-varying one on,
    as in XLA.  `memory_space` 0 is the device's own memory and 5 is pinned host memory; TPUs have
    more (`MEMORIES`).  `tiles` are the blocks in which TPUs store the fastest-varying dimensions:
    `T(8,128)(2,1)` is ((8, 128), (2, 1)).
    """

    dtype: str
    dims: tuple[int, ...] = ()
    layout: tuple[int, ...] = ()
    memory_space: int = 0
    elements: tuple[Shape, ...] = ()
    tiles: tuple[tuple[int, ...], ...] = ()

    @property
    def is_tuple(self) -> bool:
        return self.dtype == "tuple"

    @property
    def is_float(self) -> bool:
        return self.dtype[:1] in ("f", "c") or self.dtype == "bf16"

    @property
    def on_host(self) -> bool:
        """Whether any part of the value lives in host memory."""
        return any(leaf.memory_space == HOST_MEMORY for leaf in self.leaves())

    @property
    def size(self) -> int:
        """Elements of an array; of a tuple, the sum over its leaves."""
        if self.is_tuple:
            return sum(leaf.size for leaf in self.elements)
        return math.prod(self.dims)

    @property
    def bytes(self) -> int:
        """Bytes of memory, without padding; of a tuple, the sum over its leaves."""
        if self.is_tuple:
            return sum(element.bytes for element in self.elements)
        return (math.prod(self.dims) * BITS.get(self.dtype, 0) + 7) // 8

    @property
    def padded_bytes(self) -> int:
        """Bytes of memory in whole tiles; of a tuple, the sum over its leaves."""
        if self.is_tuple:
            return sum(element.padded_bytes for element in self.elements)
        if not self.tiles or not self.layout:
            return self.bytes
        # The first tile covers the fastest-varying dimensions, the last of its sizes the fastest.
        sizes = dict(enumerate(self.dims))
        tile = self.tiles[0]
        for dim, block in zip(self.layout, reversed(tile), strict=False):
            sizes[dim] = -(-sizes[dim] // block) * block
        missing = math.prod(tile[: max(0, len(tile) - len(self.layout))])
        return (math.prod(sizes.values()) * missing * BITS.get(self.dtype, 0) + 7) // 8

    @property
    def memory(self) -> str:
        """The memory that holds it: `HBM`, `VMEM`, `host`; `S(11)` if its name is not known."""
        return MEMORIES.get(self.memory_space, f"S({self.memory_space})")

    def leaves(self) -> Iterator[Shape]:
        """The arrays of a possibly nested tuple, in order; an array yields itself."""
        if self.is_tuple:
            for element in self.elements:
                yield from element.leaves()
        else:
            yield self

    def __str__(self) -> str:
        if self.is_tuple:
            return f"({', '.join(map(str, self.elements))})"
        dims = ",".join(map(str, self.dims))
        layout = ",".join(map(str, self.layout))
        tiles = "".join(f"({','.join(map(str, tile))})" for tile in self.tiles)
        space = f"S({self.memory_space})" if self.memory_space else ""
        extra = f":{tiles and 'T' + tiles}{space}" if tiles or space else ""
        suffix = f"{{{layout}{extra}}}" if layout or extra else ""
        return f"{self.dtype}[{dims}]{suffix}"


_SKIP = re.compile(r"(?:\s|/\*.*?\*/)*")
_ARRAY = re.compile(
    r"""
    (?P<dtype>[a-z]\w*)
    \[(?P<dims>[\d,<=?\s]*)\]
    (?:\{(?P<layout>[\d,\s]*)(?P<extra>:(?:[^{}]|\{[^{}]*\})*)?\})?
    """,
    re.VERBOSE,
)
_SPACE = re.compile(r"S\((\d+)\)")
_TILES = re.compile(r"T((?:\([\d,]+\))+)")
_TILE = re.compile(r"\(([\d,]+)\)")
_INT = re.compile(r"\d+")


def parse_shape(text: str) -> Shape:
    """Parse a shape; ValueError if `text` is not one."""
    shape, end = scan_shape(text, 0)
    if _skip(text, end) != len(text):
        raise ValueError(f"not a shape: {text!r} has trailing text at character {end}")
    return shape


def scan_shape(text: str, start: int) -> tuple[Shape, int]:
    """Parse the shape at `start` of `text`: (shape, end); ValueError if there is none."""
    start = _skip(text, start)
    if text[start : start + 1] == "(":
        return _scan_tuple(text, start)
    match = _ARRAY.match(text, start)
    if match is None or match["dtype"] not in BITS:
        raise ValueError(f"not a shape: {text[start : start + 40]!r}")
    return _array(match.group()), match.end()


def _skip(text: str, at: int) -> int:
    """The end of white space and comments."""
    found = _SKIP.match(text, at)
    return found.end() if found is not None else at


def _scan_tuple(text: str, start: int) -> tuple[Shape, int]:
    stack: list[list[Shape]] = []
    at = start
    while True:
        at = _skip(text, at)
        here = text[at : at + 1]
        if here == "(":
            stack.append([])
            at += 1
            if len(stack) > _DEEPEST:
                raise ValueError(f"not a shape: tuples nested more than {_DEEPEST} deep")
        elif here == ")":
            done = Shape("tuple", elements=tuple(stack.pop()))
            at += 1
            if not stack:
                return done, at
            stack[-1].append(done)
        elif here == ",":
            at += 1
        else:
            match = _ARRAY.match(text, at)
            if match is None or match["dtype"] not in BITS:
                raise ValueError(f"not a shape: {text[at : at + 40]!r}")
            stack[-1].append(_array(match.group()))
            at = match.end()


@lru_cache(maxsize=4096)
def _array(text: str) -> Shape:
    match = _ARRAY.match(text)
    assert match is not None
    # A bounded dynamic dimension `<=8` counts as its bound; an unbounded one `?` is ignored.
    dims = tuple(map(int, _INT.findall(match["dims"] or "")))
    layout = tuple(map(int, _INT.findall(match["layout"] or "")))
    extra = match["extra"] or ""
    space = _SPACE.search(extra)
    tiled = _TILES.search(extra)
    tiles = tuple(
        tuple(map(int, _INT.findall(tile))) for tile in _TILE.findall(tiled[1] if tiled else "")
    )
    number = int(space[1]) if space else 0
    return Shape(match["dtype"], dims, layout, number, tiles=tiles)
