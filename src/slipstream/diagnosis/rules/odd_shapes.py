"""Matrix products whose sizes miss what tensor cores work in: rows of 16 bytes, and tiles.

n = 50257 ─► rows of 100,514 bytes: no multiple of 16, so each row begins at another offset
m = 65    ─► two tiles of 64 rows, of which the second has one
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slipstream.analyses.ops import Op
from slipstream.analyses.roofline import RooflineRow
from slipstream.diagnosis.evidence import Evidence
from slipstream.diagnosis.rule import Rule, RuleResults, exhibits
from slipstream.machines.gemm_model import Gemm
from slipstream.profile.program import Instruction, Program
from slipstream.profile.semantics.signatures import inside
from slipstream.profile.shapes import BITS, Shape
from slipstream.results.diagnosis import Abstention, Finding, Gain, Remedy
from slipstream.units import format_time

NAME = "odd-shapes"
ROW_BYTES = 16
"""what rows must be a multiple of for tensor cores
(docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication)"""
TILE = 64
"""rows and columns of the smallest usual tile"""
ROUND = 128
"""to what sizes are best padded"""
GUIDE = "https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication"
_PRODUCTS = ("dot", "scaled-dot", "ragged-dot", "custom-call")


@dataclass(frozen=True)
class _Odd:
    op: Op
    roof: RooflineRow
    gemm: Gemm
    length: int
    """of the dimension to pad"""
    is_misaligned: bool
    wasted_us: float
    """per step, in tiles that are not full"""

    @property
    def most_us(self) -> float:
        return max(self.wasted_us, self.roof.lost_us if self.is_misaligned else 0.0)


def check(evidence: Evidence) -> RuleResults:
    """Products with rows that are no multiple of 16 bytes, or with tiles that are far from full."""
    rows = {row.instruction: row for row in evidence.roofline.rows}
    found = []
    for op in evidence.op_by_name.values():
        if op.category == "matmul" and (one := _odd(evidence, op, rows.get(op.instruction))):
            found.append(one)
    found.sort(key=lambda one: -one.most_us)
    high = sum(one.most_us for one in found)
    if not found or sum(one.op.per_step_us for one in found) < evidence.noticeable_us:
        return
    if evidence.gpu is None:
        yield Abstention(NAME, f"the peaks of {evidence.model or 'the device'} are unknown")
    elif high >= evidence.noticeable_us:
        yield _finding(evidence, found, high)


def _finding(evidence: Evidence, found: Sequence[_Odd], high: float) -> Finding:
    worst, gemm = found[0], found[0].gemm
    total = sum(one.op.per_step_us for one in found)
    wasted = sum(one.wasted_us for one in found)
    padded = -(-worst.length // ROUND) * ROUND
    odd = (
        f"rows of {worst.length} elements ({gemm.dtype}) are no multiple of {ROW_BYTES} bytes"
        if worst.is_misaligned
        else f"{worst.length} is no multiple of {TILE}, the smallest usual tile"
    )
    return Finding(
        NAME,
        title="matmuls have sizes that tensor cores are slow at",
        evidence=f"{len(found)} matmuls take {format_time(total * 1e6)} of the step. In "
        f"{worst.op.instruction} ({gemm.m} × {gemm.k} with {gemm.k} × {gemm.n}), {odd}.",
        gain=Gain(
            us=wasted if wasted else None,
            low_us=0.0,
            high_us=high,
            basis="modelled" if wasted else "bound",
            why="expected: the part of their tiles that is padding; at most: what they lose "
            "against the roofline, where rows are misaligned",
        ),
        changes=(
            Remedy(
                "code",
                f"size = {padded}  # instead of {worst.length}",
                f"pad that dimension of the weights once, where they are made; {ROUND} divides it, "
                "and the padding can be masked or sliced off",
            ),
        ),
        exhibits=exhibits([one.op for one in found], evidence),
        see="slipstream roofline PATH",
        sources=(GUIDE,),
    )


def _odd(evidence: Evidence, op: Op, roof: RooflineRow | None) -> _Odd | None:
    program, start = evidence.program, evidence.start(op.instruction)
    if program is None or start is None or roof is None:
        return None
    gemm = evidence.kernel_features(start).gemm
    if gemm is None:
        return None
    rows = [length for length in _rows(program, start) if length % _aligned(gemm.dtype)]
    full = _filled(gemm.m) * _filled(gemm.n)
    wasted = (1 - full) * op.per_step_us if roof.bound == "compute" else 0.0
    if not rows and full > 0.9:
        return None
    worst = min((gemm.m, gemm.n), key=_filled)
    return _Odd(op, roof, gemm, max(rows, default=worst), bool(rows), wasted)


def _filled(length: int) -> float:
    """The share of whole tiles that a dimension fills."""
    return length / (-(-length // TILE) * TILE) if length else 1.0


def _aligned(dtype: str) -> int:
    bits = 32 if dtype == "tf32" else BITS.get(dtype, 16)
    return max(1, 8 * ROW_BYTES // bits)


def _rows(program: Program, start: Instruction) -> list[int]:
    """Lengths of the rows of a product's arrays: their fastest-varying dimensions."""
    product = next((i for i in inside(program, start) if i.opcode in _PRODUCTS), start)
    shapes = [leaf for one in program.operands(product) for leaf in one.shape.leaves()]
    shapes += list(product.shape.leaves())[:1]
    return [_row(shape) for shape in shapes if shape.is_float and len(shape.dims) > 1]


def _row(shape: Shape) -> int:
    return shape.dims[shape.layout[0]] if shape.layout else shape.dims[-1]


RULE = Rule(NAME, "Do matmuls have sizes that tensor cores are slow at?", check)
