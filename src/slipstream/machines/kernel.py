"""What an instruction asks of a GPU: the class of its kernel, its bytes and its arithmetic."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from slipstream.machines.products import (
    Product,
    backend_config,
    product_of_call,
    product_of_convolution,
    product_of_dot,
)
from slipstream.profile.flops import ARITHMETIC, FREE, TRANSCENDENTAL
from slipstream.profile.program import Instruction, Program
from slipstream.profile.shapes import BITS
from slipstream.profile.traffic import bytes_accessed

INTEGER = frozenset(
    (
        "and", "or", "xor", "not", "shift-left", "shift-right-logical",
        "shift-right-arithmetic", "popcnt", "clz", "iota",
    )
)  # fmt: skip
PLACEHOLDERS = ("parameter", "bitcast", "broadcast", "constant")


@dataclass(frozen=True)
class Kernel:
    """The work of one execution."""

    kind: str
    """gemm, attention, convolution, copy, host copy, loop, reduce (along the fastest dimension),
    columns (along others), rows (reduced and used again), transpose, strided (one that is a loop),
    scatter, sort, free, or other (a call of something unknown)"""
    bytes: int = 0
    written: int = 0
    """of these, by a product"""
    elements: int = 0
    """written by the largest result"""
    operations: int = 0
    """arithmetic on single elements, of floats and integers, outside products"""
    transcendentals: int = 0
    product: Product | None = None
    is_triton: bool = False
    form: str = "forward"
    """of attention: forward or backward; of a convolution: forward, input or filter"""
    is_causal: bool = False
    channels: int = 0
    """input features of a convolution; of a scatter, bits of an element, 1 for lone elements"""
    pressure: float = 0.0
    """values that each thread of a Triton kernel works on at once: many don't fit in registers"""


def kernel(program: Program, instruction: Instruction) -> Kernel:
    """What one execution of an instruction asks for; of an asynchronous one, its start."""
    if instruction.is_start and (wrapped := program.wrapped(instruction.name)) is not None:
        return kernel(program, wrapped)
    if instruction.is_done or instruction.opcode in FREE:
        return Kernel("free")
    read = bytes_accessed(program, instruction)
    opcode = instruction.opcode.removesuffix("-start")
    shapes = [operand.shape for operand in program.operands(instruction)]
    on_host = instruction.shape.on_host or any(shape.on_host for shape in shapes)
    if opcode == "custom-call":
        return _call(program, instruction, read)
    if on_host:
        return Kernel("host copy", bytes=_moved(program, instruction, read))
    if opcode == "fusion":
        return _fusion(program, instruction, read)
    if opcode == "dot":
        written = instruction.shape.bytes
        return Kernel("gemm", read, written, product=product_of_dot(program, instruction))
    if opcode == "convolution":
        return Kernel("convolution", read, product=product_of_convolution(program, instruction))
    if opcode in ("sort", "scatter", "reduce", "transpose", "copy"):
        moves = opcode == "copy" and not _keeps_layout(program, instruction)
        kind = "transpose" if moves else opcode
        return Kernel(kind, read, elements=instruction.shape.size)
    size = instruction.shape.size
    return Kernel("loop", read, elements=_largest(instruction), operations=size)


def _call(program: Program, call: Instruction, read: int) -> Kernel:
    target = call.custom_call_target
    if target.startswith("__cublas$"):
        written = next(call.shape.leaves()).bytes
        return Kernel("gemm", read, written, product=product_of_call(program, call))
    if target.startswith("__cudnn$conv"):
        kernel_shape = program.operands(call)[1].shape
        labels = str(call.attributes.get("dim_labels", ""))
        if "BackwardFilter" in target:
            kernel_shape = next(call.shape.leaves())
        spelled = labels.partition("_")[2].partition("->")[0]
        inputs = kernel_shape.dims[spelled.index("i")] if "i" in spelled else 0
        return Kernel(
            "convolution",
            _touched(program, call, read),
            product=product_of_convolution(program, call),
            form=_form(target),
            channels=inputs,
        )
    if target.startswith("__cudnn$fmha"):
        return _attention(program, call, read)
    if "sort" in target.lower() or "topk" in target.lower():
        return Kernel("sort", read)
    return Kernel("other", read)


def _form(target: str) -> str:
    if "BackwardInput" in target:
        return "input"
    return "filter" if "BackwardFilter" in target else "forward"


def _attention(program: Program, call: Instruction, read: int) -> Kernel:
    config = backend_config(call, "cudnn_fmha_backend_config")
    scores = [int(d) for d in config.get("intermediate_tensor_shape", {}).get("dimensions", [])]
    operands = program.operands(call)
    if len(scores) != 4 or not all(scores) or not operands:
        return Kernel("other", read)
    head = operands[0].shape.size // math.prod(scores[:3])
    product = Product(scores[0] * scores[1], scores[2], scores[3], head, operands[0].shape.dtype)
    return Kernel(
        "attention",
        read,
        product=product,
        form="backward" if "Backward" in call.custom_call_target else "forward",
        is_causal="CAUSAL" in str(config.get("mask_type", ""))
        or bool(config.get("is_causal_mask")),
    )


def _fusion(program: Program, fusion: Instruction, read: int) -> Kernel:
    inside = list(_contents(program, fusion))
    opcodes = {instruction.opcode for instruction in inside}
    is_triton = "__triton" in fusion.backend_config
    products = [product_of_dot(program, i) for i in inside if i.opcode == "dot"]
    operations, transcendentals = _arithmetic(program, inside)
    product = max(filter(None, products), key=lambda p: p.flops, default=None)
    kind = "loop"
    if product is not None:
        kind = "gemm"
    elif calls := [i for i in inside if i.opcode == "custom-call"]:
        return _call(program, calls[0], read)
    elif convolutions := [i for i in inside if i.opcode == "convolution"]:
        product = product_of_convolution(program, convolutions[0])
        return Kernel("convolution", read, product=product)
    elif "scatter" in opcodes:
        return _scatter(program, fusion, inside, read)
    elif "sort" in opcodes:
        kind = "sort"
    elif "reduce" in opcodes:
        kind = _reduction(program, inside, is_triton and _keeps_rows(fusion, inside))
    elif any(i.opcode in ("transpose", "copy") and _turns(program, i) for i in inside):
        # XLA's loop emitter goes by one side's order and strides through the other's.
        kind = "strided" if fusion.fusion_kind == "kLoop" else "transpose"
    return Kernel(
        kind,
        read,
        written=fusion.shape.bytes if product else 0,
        elements=_largest(fusion, program),
        operations=operations,
        transcendentals=transcendentals,
        product=product,
        is_triton=is_triton,
        pressure=_pressure(program, fusion, inside) if kind == "rows" else 0.0,
    )


def _scatter(program: Program, fusion: Instruction, inside: list[Instruction], read: int) -> Kernel:
    scatter = next(i for i in inside if i.opcode == "scatter")
    updates = program.operands(scatter)[-1].shape
    # A window of one element is an atomic addition by itself; rows go side by side.
    window = updates.dims[-1] if updates.dims else 1
    bits = BITS.get(updates.dtype, 32)
    return Kernel("scatter", read, elements=updates.size, channels=bits if window > 1 else 1)


def _contents(program: Program, fusion: Instruction) -> Iterator[Instruction]:
    for name in fusion.called:
        for inner in program.computations[name].instructions:
            if inner.opcode == "fusion":
                yield from _contents(program, inner)
            else:
                yield inner


def _arithmetic(program: Program, inside: list[Instruction]) -> tuple[int, int]:
    operations = transcendentals = 0
    for instruction in inside:
        if instruction.opcode in ARITHMETIC or instruction.opcode in INTEGER:
            operations += instruction.shape.size
        elif instruction.opcode in TRANSCENDENTAL:
            transcendentals += instruction.shape.size
        elif instruction.opcode == "reduce":
            operations += program.operands(instruction)[0].shape.size
        elif instruction.opcode == "reduce-window":
            operations += instruction.shape.size * 8
    return operations, transcendentals


def _reduction(program: Program, inside: list[Instruction], keeps_rows: bool) -> str:
    if keeps_rows:
        return "rows"
    for reduce in (i for i in inside if i.opcode == "reduce"):
        source = program.operands(reduce)[0].shape
        dims = reduce.attributes.get("dimensions", ())
        if source.layout and isinstance(dims, tuple) and source.layout[0] not in dims:
            return "columns"
    return "reduce"


def _pressure(program: Program, fusion: Instruction, inside: list[Instruction]) -> float:
    """Elements of a tile that a thread has, times the values computed for each of them."""
    config = backend_config(fusion, "fusion_backend_config").get("block_level_fusion_config", {})
    tiles = config.get("output_tiles") or [{}]
    tile = [int(size) for size in tiles[0].get("sizes", ())]
    threads = 32 * int(config.get("num_warps") or 0)
    if not tile or not threads:
        return 0.0
    sources = [program.operands(i)[0].shape for i in inside if i.opcode == "reduce"]
    source = max(sources, key=lambda shape: shape.size)
    row = source.dims[-1] if source.dims else 1
    held = math.prod(tile) * (1 if max(tile) >= row else row)
    values = sum(i.shape.size >= source.size // 2 and i.opcode not in PLACEHOLDERS for i in inside)
    return held / threads * values


def _keeps_rows(fusion: Instruction, inside: list[Instruction]) -> bool:
    """Whether a row is read, reduced and used again: softmax, norms, their gradients."""
    return any(i.opcode == "broadcast" for i in inside) or fusion.shape.is_tuple


def _turns(program: Program, instruction: Instruction) -> bool:
    """Whether data changes places: a transpose whose fastest dimension is another one."""
    if instruction.opcode == "copy":
        return not _keeps_layout(program, instruction)
    order = instruction.attributes.get("dimensions", ())
    operands = program.operands(instruction)
    if not isinstance(order, tuple) or not operands or not instruction.shape.layout:
        return True
    source = operands[0].shape
    fastest = order[instruction.shape.layout[0]] if order else 0
    return not source.layout or source.layout[0] != fastest


def _keeps_layout(program: Program, instruction: Instruction) -> bool:
    operands = program.operands(instruction)
    return not operands or operands[0].shape.layout == instruction.shape.layout


def _largest(instruction: Instruction, program: Program | None = None) -> int:
    """Elements of the largest result; of an update in place, the update's."""
    if program is not None and instruction.called:
        root = program.computations[instruction.called[0]].root
        while root.opcode in ("bitcast", "convert", "copy", "reshape", "transpose"):
            operands = program.operands(root)
            if not operands:
                break
            root = operands[0]
        if root.opcode == "dynamic-update-slice":
            return program.operands(root)[1].shape.size
    return max((leaf.size for leaf in instruction.shape.leaves()), default=0)


def _moved(program: Program, instruction: Instruction, read: int) -> int:
    """Bytes over the link to the host: what is read is written as well."""
    if instruction.opcode == "copy-start":
        return instruction.shape.elements[0].bytes if instruction.shape.elements else read // 2
    return read // 2


def _touched(program: Program, call: Instruction, read: int) -> int:
    """Bytes of a convolution; one that strides further than it looks leaves pixels out."""
    window = str(call.attributes.get("window", ""))
    sizes = _numbers(window, "size")
    strides = _numbers(window, "stride")
    shares = [min(1.0, s / t) for s, t in zip(sizes, strides, strict=False)]
    if not shares or math.prod(shares) == 1:
        return read
    image = program.operands(call)[0].shape.bytes
    if "BackwardInput" in call.custom_call_target:
        return read
    return read - round(image * (1 - math.prod(shares)))


def _numbers(window: str, key: str) -> list[int]:
    _, found, rest = window.partition(f"{key}=")
    text = rest.split()[0].rstrip("}") if found else ""
    return [int(part) for part in text.split("x")] if text.replace("x", "").isdigit() else []
