"""The work of an instruction: floating-point operations, and bytes read and written.

Work is counted as in XLA's cost analysis (a multiply-add is two operations; exp, tanh and the like
are counted separately), with two deliberate differences: integer arithmetic doesn't count as
floating-point work, and a slice of a large buffer counts as the slice.

Instructions that only run others (while, call, conditional) have no work of their own, and the work
of an asynchronous operation is counted at its start.  `total_work` therefore sums `executions ×
work` over all instructions that have no `starter`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from slipstream.errors import BadInput
from slipstream.profile.program import Instruction, Program
from slipstream.profile.semantics.attention import attention_of
from slipstream.profile.semantics.backend_config import (
    BLOCK_SCALED,
    PALLAS,
    call_attributes,
    gemm_dimensions,
)
from slipstream.profile.semantics.traffic import bytes_accessed
from slipstream.profile.shapes import Shape
from slipstream.reading import DAMAGE, describe


@dataclass(frozen=True, slots=True)
class Work:
    """Floating-point operations, transcendental operations and bytes read and written."""

    flops: int = 0
    transcendentals: int = 0
    bytes: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(
            self.flops + other.flops,
            self.transcendentals + other.transcendentals,
            self.bytes + other.bytes,
        )

    def __mul__(self, times: int) -> Work:
        return Work(self.flops * times, self.transcendentals * times, self.bytes * times)


TRANSCENDENTAL = frozenset(
    (
        "atan2", "cbrt", "cosine", "erf", "exponential", "exponential-minus-one", "log",
        "log-plus-one", "logistic", "power", "rsqrt", "sine", "sqrt", "tan", "tanh",
    )
)  # fmt: skip
ARITHMETIC = frozenset(
    (
        "abs", "add", "ceil", "clamp", "compare", "divide", "floor", "maximum", "minimum",
        "multiply", "negate", "remainder", "round-nearest-afz", "round-nearest-even", "select",
        "sign", "subtract", "is-finite", "convert", "real", "imag", "complex",
    )
)  # fmt: skip
FREE = frozenset(
    (
        "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "while",
        "add-dependency", "opt-barrier", "optimization-barrier", "partition-id", "replica-id",
        "call", "conditional", "domain",
    )
)  # fmt: skip


def work(program: Program, instruction: Instruction) -> Work:
    """The work of one execution of an instruction."""
    if instruction.is_start and (wrapped := program.wrapped(instruction.name)) is not None:
        return work(program, wrapped)
    if instruction.is_done or instruction.opcode in FREE:
        return Work()
    try:
        counted = _arithmetic(program, instruction)
        return Work(counted.flops, counted.transcendentals, bytes_accessed(program, instruction))
    except DAMAGE as error:
        raise malformed(program, instruction, error) from error


def malformed(program: Program, instruction: Instruction, error: Exception) -> BadInput:
    """The error for an instruction whose operands, shapes or attributes don't fit its opcode."""
    return BadInput(
        f"program {program.name}, instruction {instruction.name}: expected a valid "
        f"{instruction.opcode}, but saw {describe(error)}; write the program again with "
        "compiled.as_text(), or dump it again"
    )


def flops(program: Program, instruction: Instruction) -> int:
    """Floating-point operations of one execution of an instruction."""
    return work(program, instruction).flops


def total_work(program: Program) -> Work:
    """The work of one run of the program; a loop of unknown trip count counts as one iteration."""
    total = Work()
    for instruction in program.runnable:
        if program.starter(instruction.name) is None:
            total += work(program, instruction) * (program.executions(instruction.name) or 1)
    return total


# Arithmetic.


def _arithmetic(program: Program, instruction: Instruction) -> Work:
    opcode = instruction.opcode.removesuffix("-start")
    if opcode == "fusion":
        return _contents(program, instruction)
    operands = program.operands(instruction)
    shapes = [operand.shape for operand in operands]
    if opcode in ARITHMETIC:
        # The result of a comparison is not a float, although its operands are.
        is_float = instruction.shape.is_float or any(shape.is_float for shape in shapes[:1])
        return Work(flops=instruction.shape.size if is_float else 0)
    if opcode in TRANSCENDENTAL:
        return Work(transcendentals=instruction.shape.size)
    count = _COUNTERS.get(opcode)
    if count is None or not shapes:
        return Work()
    return count(program, instruction, shapes)


def _contents(program: Program, instruction: Instruction) -> Work:
    total = Work()
    for name in instruction.called:
        if name in program.computations:
            for inner in program.computations[name].instructions:
                total += _arithmetic(program, inner)
    return total


def _dot(program: Program, instruction: Instruction, shapes: list[Shape]) -> Work:
    contracted = _dims(instruction, "lhs_contracting_dims")
    return Work(flops=2 * instruction.shape.size * _sized(shapes[0], contracted))


def _reduce(program: Program, instruction: Instruction, shapes: list[Shape]) -> Work:
    # Each result takes one application of the reducer less than it has elements.
    result = next(instruction.shape.leaves())
    return _reducer(program, instruction) * max(shapes[0].size - result.size, 0)


def _reduce_window(program: Program, instruction: Instruction, shapes: list[Shape]) -> Work:
    window = _window(instruction)
    sizes = window.get("size", [1])
    if _covers_all(window, shapes[0]):
        # Every window holds the same values: XLA:TPU writes a reduction so, if it is broadcast.
        kept = [dim for dim, size in zip(shapes[0].dims, sizes, strict=True) if size == 1]
        return _reducer(program, instruction) * max(shapes[0].size - math.prod(kept), 0)
    size = math.prod(sizes)
    return _reducer(program, instruction) * (next(instruction.shape.leaves()).size * (size - 1))


def _covers_all(window: dict[str, list[int]], image: Shape) -> bool:
    """Whether each window is a single element, or all of its dimension, wherever it is."""
    sizes, pads = window.get("size", []), window.get("pad", [])
    return len(sizes) == len(image.dims) == len(pads) and all(
        size == 1 or size == 2 * dim - 1 and pad == dim - 1
        for size, dim, pad in zip(sizes, image.dims, pads, strict=True)
    )


def _scatter(program: Program, instruction: Instruction, shapes: list[Shape]) -> Work:
    return _reducer(program, instruction) * shapes[-1].size


def _all_reduce(program: Program, instruction: Instruction, shapes: list[Shape]) -> Work:
    return _reducer(program, instruction) * sum(shape.size for shape in shapes)


def _reducer(program: Program, instruction: Instruction) -> Work:
    return _contents(program, instruction) if instruction.called else Work(flops=1)


def _custom_call(program: Program, instruction: Instruction, shapes: list[Shape]) -> Work:
    target = instruction.custom_call_target
    if "cublas" in target and "matmul" in target or target == "__cublas$gemm":
        return Work(flops=_dot_flops(shapes[:2], gemm_dimensions(instruction)))
    if target.startswith("__cudnn$conv"):
        return _cudnn_convolution(instruction, shapes)
    if target == BLOCK_SCALED and len(shapes) > 1:
        result = next(instruction.shape.leaves())
        return Work(flops=2 * result.size * shapes[0].dims[-1])
    attention = attention_of(instruction, shapes)
    if attention is not None:
        return Work(flops=attention.flops, transcendentals=attention.pairs)
    if target.startswith(PALLAS):
        return _pallas(instruction)
    if is_product_of_te(target):
        sizes = product_of_sizes(shapes, next(instruction.shape.leaves()))
        return Work(flops=2 * math.prod(sizes)) if sizes is not None else Work()
    return Work()


def is_product_of_te(target: str) -> bool:
    """Whether a custom call is a product of Transformer Engine, grouped or not."""
    return target.startswith("te_") and "gemm" in target


def product_of_sizes(shapes: Sequence[Shape], result: Shape) -> tuple[int, int, int] | None:
    """m, n and k of the product of the first two operands, from their sizes alone.

    For a grouped product, with a matrix for each group of rows, the first dimension of the
    second operand is the number of groups.
    """
    if len(shapes) < 2 or not all(shape.size for shape in (*shapes[:2], result)):
        return None
    left, right = shapes[:2]
    groups = right.dims[0] if len(right.dims) == 3 else 1
    squared = left.size * (right.size // groups) / result.size
    k = math.isqrt(round(squared))
    if not k or k * k != round(squared) or left.size % k:
        return None
    return left.size // k, right.size // groups // k, k


def _pallas(instruction: Instruction) -> Work:
    """What the compiler's process counted in the kernel's code."""
    stated = call_attributes(instruction)
    counts = [stated.get(f"slipstream_{name}", 0) for name in ("flops", "transcendentals")]
    flops, transcendentals = (n if isinstance(n, int) and n > 0 else 0 for n in counts)
    return Work(flops=flops, transcendentals=transcendentals)


def _dot_flops(shapes: list[Shape], dimensions: Mapping[str, tuple[int, ...]]) -> int:
    if len(shapes) < 2 or not dimensions.get("lhs_contracting"):
        return 0
    left, right = shapes
    shared = dimensions.get("rhs_contracting", ()) + dimensions.get("rhs_batch", ())
    return 2 * left.size * (right.size // max(_sized(right, shared), 1))


def is_product(program: Program, convolution: Instruction) -> bool:
    """Whether a convolution is a matrix product, as XLA:TPU writes them.

    In a product, each dimension of the window is a batch, or belongs to one operand only: then no
    input meets more than one element of the kernel, or no output has more than one position.
    """
    shapes = [operand.shape for operand in program.operands(convolution)]
    labels = dim_labels(convolution)
    if labels is None or len(shapes) < 2:
        return False
    image, result = shapes[0], next(convolution.shape.leaves())
    window = _window(convolution)
    for place, size in enumerate(window.get("size", [])):
        lengths = image.dims[labels[0].index(str(place))], result.dims[labels[2].index(str(place))]
        if _taps(window, place, *lengths) > max(size, *lengths):
            return False
    return True


def dim_labels(instruction: Instruction) -> tuple[str, str, str] | None:
    """What the dimensions of image, kernel and result of a convolution are: `0bf`, `io0`, `0bf`."""
    found = re.fullmatch(r"(\w+)_(\w+)->(\w+)", str(instruction.attributes.get("dim_labels", "")))
    return (found[1], found[2], found[3]) if found else None


def _convolution(program: Program, instruction: Instruction, shapes: list[Shape]) -> Work:
    labels = re.fullmatch(r"(\w+)_(\w+)->(\w+)", str(instruction.attributes.get("dim_labels", "")))
    if labels is None or len(shapes) < 2:
        return Work()
    image, kernel = shapes[0], shapes[1]
    result = next(instruction.shape.leaves())
    window = _window(instruction)
    taps = 1
    for place in range(len(window.get("size", []))):
        taps *= _taps(
            window,
            place,
            image.dims[labels[1].index(str(place))],
            result.dims[labels[3].index(str(place))],
        )
    inputs = kernel.dims[labels[2].index("i")]
    batch = result.dims[labels[3].index("b")]
    features = result.dims[labels[3].index("f")]
    return Work(flops=2 * taps * batch * features * inputs)


def _taps(window: dict[str, list[int]], place: int, image: int, result: int) -> int:
    """How many (output, kernel) positions of one dimension fall on input rather than padding."""
    size, stride = window["size"][place], window["stride"][place]
    low, spread = window["pad"][place], window["lhs_dilate"][place]
    step = window["rhs_dilate"][place]
    last = (image - 1) * spread
    if spread > 1:
        if size * result > 1_000_000:
            return size * result // spread
        places = (o * stride + k * step - low for o in range(result) for k in range(size))
        return sum(1 for at in places if 0 <= at <= last and at % spread == 0)
    count = 0
    for k in range(size):
        first = max(0, math.ceil((low - k * step) / stride))
        final = min(result - 1, (last + low - k * step) // stride)
        count += max(0, final - first + 1)
    return count


def _cudnn_convolution(instruction: Instruction, shapes: list[Shape]) -> Work:
    """Every cuDNN convolution costs as much as the forward one that it belongs to."""
    labels = re.fullmatch(r"(\w+)_(\w+)->(\w+)", str(instruction.attributes.get("dim_labels", "")))
    if labels is None or len(shapes) < 2:
        return Work()
    result = next(instruction.shape.leaves())
    output, kernel = result, shapes[1]
    if "BackwardInput" in instruction.custom_call_target:
        output = shapes[0]
    elif "BackwardFilter" in instruction.custom_call_target:
        output, kernel = shapes[1], result
    each = kernel.size // max(kernel.dims[labels[2].index("o")], 1)
    return Work(flops=2 * output.size * each)


_COUNTERS: dict[str, Callable[[Program, Instruction, list[Shape]], Work]] = {
    **dict.fromkeys(("dot", "scaled-dot", "ragged-dot"), _dot),
    "convolution": _convolution,
    "custom-call": _custom_call,
    "reduce": _reduce,
    "reduce-window": _reduce_window,
    "scatter": _scatter,
    "all-reduce": _all_reduce,
    "reduce-scatter": _all_reduce,
}


def _dims(instruction: Instruction, key: str) -> tuple[int, ...]:
    value = instruction.attributes.get(key, ())
    return value if isinstance(value, tuple) else ()


def _sized(shape: Shape, dims: Iterable[int]) -> int:
    return math.prod(shape.dims[dim] for dim in dims if dim < len(shape.dims))


def _window(instruction: Instruction) -> dict[str, list[int]]:
    """Parse `{size=3x3 pad=1_1x1_1}` into lists by key; only the low padding is kept."""
    fields = re.findall(r"(\w+)=([\dx_\-]+)", str(instruction.attributes.get("window", "")))
    found = {key: [int(part.split("_")[0]) for part in value.split("x")] for key, value in fields}
    rank = len(found.get("size", []))
    ones = {"stride": 1, "lhs_dilate": 1, "rhs_dilate": 1, "pad": 0}
    return {**{key: [value] * rank for key, value in ones.items()}, **found}
