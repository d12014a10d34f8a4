"""Features of fusions: arithmetic, tiles, and the order of reads."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from slipstream.profile.program import Instruction, Program
from slipstream.profile.semantics.backend_config import backend_config
from slipstream.profile.semantics.flops import ARITHMETIC, TRANSCENDENTAL
from slipstream.profile.shapes import Shape

INTEGER = frozenset(
    (
        "and", "or", "xor", "not", "shift-left", "shift-right-logical",
        "shift-right-arithmetic", "popcnt", "clz", "iota",
    )
)  # fmt: skip
REPEATING = INTEGER | ARITHMETIC | TRANSCENDENTAL | frozenset(
    ("broadcast", "bitcast", "reshape", "transpose", "copy")
)  # fmt: skip
"""operations that read one operand element for each of their own"""


def contents(program: Program, fusion: Instruction) -> Iterator[Instruction]:
    """The operations of a fusion, including those of nested fusions."""
    for name in fusion.called:
        for inner in program.computations[name].instructions:
            if inner.opcode == "fusion":
                yield from contents(program, inner)
            else:
                yield inner


def arithmetic(
    program: Program, inside: list[Instruction], counts: Mapping[str, int]
) -> tuple[int, int]:
    """(elementwise operations, transcendental functions); `counts` has evaluations by name."""
    operations = transcendentals = 0
    for instruction in inside:
        count = max(instruction.shape.size, counts.get(instruction.name, 0))
        if instruction.opcode in ARITHMETIC or instruction.opcode in INTEGER:
            operations += count
        elif instruction.opcode in TRANSCENDENTAL:
            transcendentals += count
        elif instruction.opcode == "reduce":
            operations += program.operands(instruction)[0].shape.size
        elif instruction.opcode == "reduce-window":
            operations += count * 8
    return operations, transcendentals


def evaluations(program: Program, fusion: Instruction) -> dict[str, int]:
    """How often each operation of a fusion is evaluated, if more often than its elements.

    XLA's emitters recompute an element for every use: a broadcast operand, such as a mask, is
    recomputed for every element of the result.
    """
    counts: dict[str, int] = {}
    for name in fusion.called:
        inside = program.computations[name].instructions
        spread = (program.operands(i)[0] for i in inside if i.opcode == "broadcast")
        if all(operand.opcode in ("parameter", "constant") for operand in spread):
            continue  # most fusions only broadcast parameters and constants
        for user in reversed(inside):
            count = max(counts.get(user.name, 0), user.shape.size)
            for operand in program.operands(user):
                size = operand.shape.size
                if user.opcode in REPEATING:
                    counts[operand.name] = max(counts.get(operand.name, 0), count, size)
                else:
                    share = count / max(user.shape.size, 1)
                    counts[operand.name] = max(counts.get(operand.name, 0), round(share * size))
    return counts


def reduction(program: Program, inside: list[Instruction], has_rows: bool) -> str:
    """The kind of a reduction kernel: see `KernelFeatures.kind`."""
    if has_rows:
        return "rows"
    for reduce in (i for i in inside if i.opcode == "reduce"):
        source = program.operands(reduce)[0].shape
        dims = reduce.attributes.get("dimensions", ())
        if source.layout and isinstance(dims, tuple) and source.layout[0] not in dims:
            return "columns"
    return "reduce"


def kept(program: Program, fusion: Instruction, inside: list[Instruction]) -> float:
    """Values that a thread of a Triton kernel keeps until a reduction over its rows is done.

    softmax:   x ── max ── exp(x − max) ── sum ── exp / sum      x over one, exp over the next
    """
    tile, threads = _tile(fusion)
    if not tile or not threads:
        return 0.0
    source = rows_of(program, inside)
    row = source.dims[-1] if source.dims else 1
    held = math.prod(tile) * (1 if max(tile) >= row else row)
    return held / threads * _live(program, inside, source.size // 2)


def rows_of(program: Program, inside: list[Instruction]) -> Shape:
    """The largest array that is reduced."""
    sources = (program.operands(i)[0].shape for i in inside if i.opcode == "reduce")
    return max(sources, key=lambda shape: shape.size)


def _live(program: Program, inside: list[Instruction], least: int) -> int:
    """Values of at least that size that something after a later reduction needs again."""
    reductions: dict[str, int] = {}
    last_use: dict[str, int] = {}
    same: dict[str, str] = {}
    for instruction in inside:  # operands come first
        operands = [same[o.name] for o in program.operands(instruction) if o.name in same]
        if instruction.opcode == "bitcast" and operands:
            same[instruction.name] = operands[0]
            continue
        same[instruction.name] = instruction.name
        before = max((reductions[name] for name in operands), default=0)
        for name in operands:
            last_use[name] = max(last_use.get(name, 0), before)
        reductions[instruction.name] = before + (instruction.opcode == "reduce")
    return sum(
        last_use.get(i.name, 0) > reductions[i.name]
        for i in inside
        if i.name in reductions
        and i.shape.size >= least
        and i.opcode not in ("broadcast", "constant")
    )


def _tile(fusion: Instruction) -> tuple[list[int], int]:
    """(tile sizes of a Triton program, its threads)."""
    config = backend_config(fusion, "fusion_backend_config").get("block_level_fusion_config", {})
    tiles = config.get("output_tiles") or [{}]
    return [int(size) for size in tiles[0].get("sizes", ())], 32 * int(config.get("num_warps") or 0)


UNTUNED = ((16 * 8, 32), (64 * 32, 1024))
"""(elements of a tile, tiles of the result): no autotuner takes so many tiles so small. Without a
GPU, XLA takes the first tile of its list that works: 16 × 8 or 64 × 32; autotuned ones of large
products have 64 × 128 and more"""


def is_untuned(fusion: Instruction, elements: int) -> bool:
    """Whether a GEMM with so many results has a tile that XLA took where it can't measure."""
    size = math.prod(_tile(fusion)[0])
    return any(size <= most and elements > tiles * size > 0 for most, tiles in UNTUNED)


def unfused(program: Program, dot: Instruction, is_fp8: bool = False) -> int:
    """Bytes that kernels before and after a library's GEMM would write and read again.

    A GEMM of fp8 values takes them with their scales.
    """
    bytes_ = sum(
        2 * operand.shape.bytes
        for operand in program.operands(dot)[:2]
        if not is_fp8 and not _is_stored(program, operand)
    )
    root = program.computations[dot.computation].root
    for _ in range(_STEPS):
        if root.name == dot.name:
            return bytes_
        operands = program.operands(root)
        if root.opcode not in _FREE_AFTER or not operands:
            break
        root = operands[0]
    return bytes_ + 2 * dot.shape.bytes


def transposed(program: Program, dot: Instruction, dtype: str) -> int:
    """Bytes of the fp8 operands whose fastest dimension is not the contracted one."""
    if dtype != "f8":
        return 0
    found = 0
    for operand, side in zip(program.operands(dot)[:2], ("lhs", "rhs"), strict=True):
        contracted = dot.attributes.get(f"{side}_contracting_dims", ())
        layout = operand.shape.layout
        if layout and isinstance(contracted, (tuple, list)) and layout[0] not in contracted:
            found += operand.shape.size  # one byte each, however it is converted later
    return found


def _is_stored(program: Program, value: Instruction) -> bool:
    """Whether a library can read an operand as it lies in memory."""
    for _ in range(_STEPS):
        if value.opcode == "parameter":
            return True
        operands = program.operands(value)
        if value.opcode not in ("bitcast", "reshape", "transpose", "copy") or not operands:
            return False
        value = operands[0]
    return False


_FREE_AFTER = ("bitcast", "reshape", "convert", "copy")
_STEPS = 16


def apart(program: Program, fusion: Instruction, inside: list[Instruction]) -> int:
    """Rows of a tile, if each lies apart from the others and they share a mask.

    tile 1 × 1 × 16 × row     ████████████████  of one head             1
    tile 1 × 16 × 1 × row     █ · █ · █ · █ ··  one row of 16 heads    16
    """
    tile, dims = _tile(fusion)[0], next(fusion.shape.leaves()).dims
    if len(tile) != len(dims) or not _share_a_mask(program, inside):
        return 1
    outer = list(zip(tile, dims, strict=True))
    if math.prod(dims) >= rows_of(program, inside).size:
        outer.pop()  # along the row
    size, whole = outer[-1] if outer else (1, 1)
    is_apart = size == 1 and whole > 1
    return math.prod(size for size, _ in outer) if is_apart else 1


def _share_a_mask(program: Program, inside: list[Instruction]) -> bool:
    """Whether a matrix over rows, computed from positions or read, serves several of them."""
    row = rows_of(program, inside)
    for instruction in inside:
        if instruction.opcode == "iota":
            return True
        if instruction.opcode == "broadcast" and instruction.shape.size >= row.size // 2:
            mask = program.operands(instruction)[0].shape
            if len(mask.dims) > 1 and mask.dims[-1] == row.dims[-1]:
                return True
    return False


def is_scattered(program: Program, fusion: Instruction, inside: list[Instruction]) -> bool:
    """Whether a tile has whole rows, but the result's fastest dimension is another.

    tile 1 × row × 16: of each line of the result, 16 elements are written together
    """
    tile = _tile(fusion)[0]
    row = rows_of(program, inside).dims[-1:]
    return bool(tile and row) and tile[-1] < row[0] <= max(tile)


def strided(program: Program, fusion: Instruction) -> int:
    """Elements that a transpose reads through another transpose.

    XLA's emitter moves one transpose of a fusion through shared memory; an earlier transpose then
    scatters the reads.
    """
    seen: set[tuple[str, bool]] = set()
    found: dict[str, int] = {}
    roots = [program.computations[name].root for name in fusion.called]
    left = [(root, False) for root in roots]
    while left:
        instruction, after_transpose = left.pop()
        if (instruction.name, after_transpose) in seen:
            continue
        seen.add((instruction.name, after_transpose))
        is_transpose = instruction.opcode in ("transpose", "copy") and changes_order(
            program, instruction
        )
        if is_transpose and after_transpose:
            found[instruction.name] = instruction.shape.size
        left += [
            (operand, after_transpose or is_transpose) for operand in program.operands(instruction)
        ]
    return sum(found.values())


def keeps_rows(fusion: Instruction, inside: list[Instruction]) -> bool:
    """Whether rows are read, reduced and used again: softmax, norms and their gradients."""
    return any(i.opcode == "broadcast" for i in inside) or fusion.shape.is_tuple


def changes_order(program: Program, instruction: Instruction) -> bool:
    """Whether a transpose or copy changes which dimension is the fastest."""
    if instruction.opcode == "copy":
        return not keeps_layout(program, instruction)
    order = instruction.attributes.get("dimensions", ())
    operands = program.operands(instruction)
    if not isinstance(order, tuple) or not operands or not instruction.shape.layout:
        return True
    source = operands[0].shape
    fastest = order[instruction.shape.layout[0]] if order else 0
    return not source.layout or source.layout[0] != fastest


def keeps_layout(program: Program, instruction: Instruction) -> bool:
    """Whether a copy keeps the layout."""
    operands = program.operands(instruction)
    return not operands or operands[0].shape.layout == instruction.shape.layout


def largest(instruction: Instruction, program: Program | None = None) -> int:
    """Elements of the largest result; for an in-place update, of the update."""
    shape = instruction.shape
    if program is not None and instruction.called:
        root = program.computations[instruction.called[0]].root
        shape = root.shape  # that of an asynchronous start also lists its operands
        while root.opcode in ("bitcast", "convert", "copy", "reshape", "transpose"):
            operands = program.operands(root)
            if not operands:
                break
            root = operands[0]
        if root.opcode == "dynamic-update-slice":
            return program.operands(root)[1].shape.size
    return max((leaf.size for leaf in shape.leaves()), default=0)
