"""Count the work of Pallas kernels in their own code: Triton's or Mosaic GPU's MLIR.

    grid of programs ──► integers that follow from the position in the grid ──► loops' trip counts
    matmuls, exponentials and arithmetic × trip counts, summed over the grid

Bounds of loops, such as those of causal attention, are evaluated for all programs at once. A loop
whose length follows from data counts once, and the work is marked as a lower bound.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]
"""a number for each program of the grid; of one element if it is the same for all"""

MOST_PROGRAMS = 4096
"""larger grids are sampled"""
WARPGROUP = 128
"""threads that run a Mosaic GPU matmul together"""
_GOLDEN = (math.sqrt(5) - 1) / 2
PREFIX = "stable_mosaic_gpu."
_WGMMA = re.compile(r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k(\d+)\.\w+\.(\w+)\.")
_TRANSCENDENTAL_ASM = re.compile(r"\b(ex2|lg2|tanh|sin|cos|rsqrt|sqrt|rcp)\.approx")
_SHAPE = re.compile(r"(?:tensor|vector)<((?:\d+x)*)")
_TYPES = {"e4m3": "f8", "e5m2": "f8", "f8E4M3FN": "f8", "f8E5M2": "f8", "f32": "tf32"}
_BINARY: dict[str, Callable[[Values, Values], Values]] = {
    "addi": np.add,
    "add": np.add,
    "subi": np.subtract,
    "sub": np.subtract,
    "muli": np.multiply,
    "mul": np.multiply,
    "divsi": lambda a, b: np.trunc(a / b),
    "divui": lambda a, b: np.floor(a / b),
    "floordivsi": lambda a, b: np.floor(a / b),
    "ceildivsi": lambda a, b: np.ceil(a / b),
    "ceildivui": lambda a, b: np.ceil(a / b),
    "remsi": np.fmod,
    "remui": np.fmod,
    "minsi": np.minimum,
    "minui": np.minimum,
    "maxsi": np.maximum,
    "maxui": np.maximum,
    "andi": lambda a, b: (a.astype(np.int64) & b.astype(np.int64)).astype(float),
    "ori": lambda a, b: (a.astype(np.int64) | b.astype(np.int64)).astype(float),
    "xori": lambda a, b: (a.astype(np.int64) ^ b.astype(np.int64)).astype(float),
    "shli": lambda a, b: a * 2.0**b,
    "shrsi": lambda a, b: np.floor(a / 2.0**b),
    "shrui": lambda a, b: np.floor(a / 2.0**b),
}
_COMPARISONS = (np.equal, np.not_equal, *(np.less, np.less_equal, np.greater, np.greater_equal) * 2)
"""in the order of arith.cmpi's predicates"""
_SAME = ("index_cast", "index_castui", "extsi", "extui", "trunci", "bitcast")
_FLOAT = frozenset(
    (
        "addf", "subf", "mulf", "divf", "maxnumf", "minnumf", "maximumf", "minimumf", "cmpf",
        "negf", "select", "fma", "truncf", "extf", "sitofp", "uitofp", "absf", "fadd", "fmul",
    )
)  # fmt: skip


@dataclass
class KernelWork:
    """The work of one execution of a kernel, over all programs of its grid."""

    flops: float = 0
    """of matmuls"""
    operations: float = 0
    """elementwise arithmetic"""
    transcendentals: float = 0
    programs: int = 1
    longest: float = 1.0
    """matmul work of the longest program over the mean"""
    is_dynamic: bool = False
    """whether a loop's length follows from data: the work is then a lower bound"""
    by_tile: dict[tuple[int, int, int, str], float] = field(default_factory=dict)
    """FLOPs by the shape of a matmul and its type"""

    def as_attributes(self) -> str:
        """For the configuration of the call, as MLIR; `call_features` reads it."""
        m, n, k, dtype = max(self.by_tile, key=self.by_tile.__getitem__, default=(0, 0, 0, ""))
        return (
            f"slipstream_flops = {round(self.flops)} : i64, "
            f"slipstream_operations = {round(self.operations)} : i64, "
            f"slipstream_transcendentals = {round(self.transcendentals)} : i64, "
            f"slipstream_programs = {self.programs} : i64, "
            f"slipstream_longest = {self.longest:.4f} : f64, "
            f"slipstream_is_dynamic = {str(self.is_dynamic).lower()}, "
            f"slipstream_m = {m} : i64, slipstream_n = {n} : i64, slipstream_k = {k} : i64, "
            f'slipstream_dtype = "{dtype}"'
        )


def triton_work(module: Any, grid: tuple[int, int, int]) -> KernelWork:
    """The work of a Triton kernel; each program runs its code once, on whole tiles."""
    counter = _Counter(_points(grid), threads=1)
    return counter.counted(module.operation, math.prod(grid))


def mosaic_work(module: Any) -> KernelWork:
    """The work of a Mosaic GPU kernel; every warpgroup runs its code, thread by thread."""
    counter = _Counter([np.zeros(1)] * 4, threads=WARPGROUP)
    return counter.counted(module.operation, 1)


def _points(sizes: Iterable[int]) -> list[Values]:
    """Coordinates of all points of a grid, the first fastest, or of a sample of them."""
    sizes = list(sizes)
    total = math.prod(sizes)
    number = np.arange(total, dtype=float)
    if total > MOST_PROGRAMS:
        # Multiples of the golden ratio are spread evenly and don't fall into step with a size.
        number = np.floor(np.arange(1, MOST_PROGRAMS + 1) * _GOLDEN % 1 * total)
    found = []
    for size in sizes:
        found.append(np.fmod(number, size))
        number = np.floor(number / size)
    return found


class _Counter:
    """Walks a kernel's code with the values of its integers."""

    def __init__(self, points: list[Values], threads: int) -> None:
        self.points, self.threads = points, threads
        self.scale = 1.0
        self.values: dict[Any, Values] = {}
        self.work = KernelWork()
        self.flops: Values = np.zeros(1)
        self.groups = 1
        """points of one program: its warpgroups"""
        self._block: list[Values] = []

    def counted(self, operation: Any, programs: int) -> KernelWork:
        self._set_scale(programs)
        self.work.programs = programs
        self._regions(operation, np.ones(1))
        flops = np.broadcast_to(self.flops, self.points[0].shape)
        of_programs = flops.reshape(-1, self.groups).sum(axis=1)
        mean = float(np.mean(of_programs))
        self.work.longest = float(np.max(of_programs)) / mean if mean else 1.0
        return self.work

    def _set_scale(self, total: int) -> None:
        self.scale = total / len(self.points[0])

    def _regions(self, operation: Any, weight: Values) -> None:
        for region in operation.regions:
            self._region(region, weight)

    def _region(self, region: Any, weight: Values) -> None:
        if not np.any(weight):
            return
        for block in region.blocks:
            for op in block.operations:
                self._visit(op.operation, weight)

    def _visit(self, op: Any, weight: Values) -> None:
        name = op.name.removeprefix(PREFIX)
        dialect, _, short = name.partition(".")
        control = _CONTROL.get(name)
        if control is not None:
            control(self, op, weight)
        elif name == "tt.dot":
            (m, k), (_, n) = (_dims(value.type) for value in list(op.operands)[:2])
            self._matmul(m, n, k, _element(op.operands[0].type), weight)
        elif short == "inline_asm":
            self._inline(str(op.attributes["asm_string"]), weight)
        elif (dialect == "math" or short == "extern_elementwise") and op.results:
            self.work.transcendentals += self._elements(op.results[0].type, weight)
        elif name in ("tt.reduce", "tt.scan"):
            self.work.operations += self._elements(op.operands[0].type, weight)
        elif op.results:
            self._evaluate(op, dialect, short, weight)

    def _matmul(self, m: int, n: int, k: int, dtype: str, weight: Values) -> None:
        dtype = _TYPES.get(dtype, dtype)
        self.flops = self.flops + 2.0 * m * n * k * weight
        total = 2.0 * m * n * k * self._sum(weight)
        self.work.flops += total
        key = (m, n, k, dtype)
        self.work.by_tile[key] = self.work.by_tile.get(key, 0.0) + total

    def _inline(self, assembly: str, weight: Values) -> None:
        if found := _WGMMA.search(assembly):
            self._matmul(64, int(found[1]), int(found[2]), found[3], weight)
        elif _TRANSCENDENTAL_ASM.search(assembly):
            self.work.transcendentals += self.threads * self._sum(weight)
        elif "f32" in assembly or "f16" in assembly:
            self.work.operations += self.threads * self._sum(weight)

    def _sum(self, weight: Values) -> float:
        count = len(self.points[0])
        return float(np.sum(np.broadcast_to(weight, (count,)))) * self.scale

    def _elements(self, kind: Any, weight: Values) -> float:
        return math.prod(_dims(kind)) * self.threads * self._sum(weight)

    # Integers.

    def _evaluate(self, op: Any, dialect: str, short: str, weight: Values) -> None:
        result = op.results[0]
        kind = str(result.type)
        if short in _FLOAT and ("f32" in kind or "f16" in kind):
            self.work.operations += self._elements(result.type, weight)
        elif not _SHAPE.match(kind):
            value = self._integer(op, short)
            if value is not None:
                self.values[result] = value

    def _integer(self, op: Any, short: str) -> Values | None:
        if short in ("constant", "mlir.constant"):
            return _constant(op.attributes["value"])
        if short in ("get_program_id", "block_id", "thread_id", "block_dim", "grid_dim"):
            return self._position(op, short)
        if short == "get_num_programs":
            return None
        given = [self.values.get(value) for value in op.operands]
        if short == "shfl.sync":
            return given[1]  # all threads of a warp get one thread's number, which is theirs here
        if not given or any(value is None for value in given):
            return None
        known = [value for value in given if value is not None]
        if short in _SAME:
            return known[0]
        if short == "cmpi":
            compare = _COMPARISONS[int(op.attributes["predicate"])]
            return np.asarray(compare(known[0], known[1]), dtype=float)
        if short == "select":
            return np.where(known[0] != 0, known[1], known[2])
        if short in _BINARY and len(known) == 2:
            with np.errstate(divide="ignore", invalid="ignore"):
                return np.nan_to_num(_BINARY[short](known[0], known[1]))
        return None

    def _position(self, op: Any, short: str) -> Values | None:
        axis = _axis(op)
        if short in ("get_program_id", "block_id"):
            return self.points[axis]
        if short == "thread_id":
            return self._threads()[axis]
        if short == "block_dim":
            return self._block[axis]
        return None

    # Control flow.

    def _for(self, op: Any, weight: Values) -> None:
        low, high, step = (self.values.get(value) for value in list(op.operands)[:3])
        body = op.regions[0]
        trips: Values = np.ones(1)
        if low is None or high is None or step is None:
            self.work.is_dynamic = True
        else:
            trips = np.maximum(np.ceil((high - low) / step), 0)
            # For the bounds of inner loops, the middle of this one stands for all its rounds.
            self.values[body.blocks[0].arguments[0]] = low + np.floor(trips / 2) * step
        self._region(body, weight * trips)

    def _while(self, op: Any, weight: Values) -> None:
        self.work.is_dynamic = True
        self._regions(op, weight)

    def _if(self, op: Any, weight: Values) -> None:
        condition = self.values.get(op.operands[0])
        for place, region in enumerate(op.regions):
            if condition is None:
                # Either may run; an upper bound counts both.
                self._region(region, weight)
            else:
                self._region(region, weight * ((condition != 0) == (place == 0)))

    def _switch(self, op: Any, weight: Values) -> None:
        chosen = self.values.get(op.operands[0])
        cases = [int(one) for one in op.attributes["cases"]]
        default, *others = op.regions
        if chosen is None:
            self._regions(op, weight)
            return
        for case, region in zip(cases, others, strict=True):
            self._region(region, weight * (chosen == case))
        self._region(default, weight * ~np.isin(chosen, cases))

    def _launch(self, op: Any, weight: Values) -> None:
        """Run a GPU kernel: grid, block; each warpgroup of a block is one point."""
        sizes = [v for v in op.operands if "token" not in str(v.type)][:6]
        grid = [int(self._known(value)) for value in sizes[:3]]
        block = [int(self._known(value)) for value in sizes[3:]]
        self.groups = groups = max(math.prod(block) // WARPGROUP, 1)
        blocks = _points(grid)
        self.points = [np.repeat(axis, groups) for axis in blocks]
        self.points.append(np.tile(np.arange(groups, dtype=float), len(blocks[0])))
        self._set_scale(groups * math.prod(grid))
        self._block = [np.full(1, float(size)) for size in block]
        self.work.programs = math.prod(grid)
        arguments = list(op.regions[0].blocks[0].arguments)
        known = [*self.points[:3], *self._threads(), *(np.full(1, float(s)) for s in grid)]
        self.values |= dict(zip(arguments, [*known, *self._block], strict=False))
        self._regions(op, np.ones(1))

    def _known(self, value: Any) -> float:
        found = self.values.get(value)
        if found is None:
            raise ValueError("a kernel whose grid is not constant")
        return float(found.flat[0])

    def _threads(self) -> list[Values]:
        """The first thread of each warpgroup."""
        number, found = self.points[3] * WARPGROUP, []
        for size in self._block:
            found.append(np.fmod(number, size))
            number = np.floor(number / size)
        return found


_CONTROL: dict[str, Callable[[_Counter, Any, Values], None]] = {
    "scf.for": _Counter._for,
    "scf.while": _Counter._while,
    "scf.if": _Counter._if,
    "scf.index_switch": _Counter._switch,
    "gpu.launch": _Counter._launch,
    **dict.fromkeys(("tt.func", "func.func", "builtin.module"), _Counter._regions),
}


def _axis(op: Any) -> int:
    """The axis of a program's or thread's number, spelled `x`, `#gpu<dim x>` or 0."""
    for name in ("axis", "dimension"):
        if name in op.attributes:
            text = str(op.attributes[name])
            found = re.search(r"\b([xyz])\b", text)
            return "xyz".index(found[1]) if found else int(text.partition(":")[0])
    raise ValueError(f"{op.name} without an axis")


def _constant(attribute: Any) -> Values | None:
    text = str(attribute).partition(":")[0].strip()
    if text in ("true", "false"):
        return np.full(1, float(text == "true"))
    return np.full(1, float(text)) if re.fullmatch(r"-?\d+", text) else None


def _dims(kind: Any) -> tuple[int, ...]:
    found = _SHAPE.match(str(kind))
    return tuple(int(size) for size in found[1].split("x") if size) if found else ()


def _element(kind: Any) -> str:
    return str(kind).rpartition("x")[2].partition(",")[0].rstrip(">")
