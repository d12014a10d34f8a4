"""What is known about a kernel before it runs."""

from __future__ import annotations

from dataclasses import dataclass

from slipstream.machines.gemm_model import Gemm

MATMULS = {"forward": 2, "backward": 5}
"""of an attention, by its form"""


@dataclass(frozen=True)
class KernelFeatures:
    """The work of one execution of a kernel."""

    kind: str
    """gemm, attention, convolution, pallas (a kernel whose work was counted in its code), copy,
    host copy, loop, reduce (along the fastest dimension), columns (a reduction along others), rows
    (reduced and used again), transpose, strided (a transpose in a loop kernel), scatter, sort,
    callback (into Python on the host), free, or other (an unknown call)"""
    bytes: int = 0
    written: int = 0
    """bytes of these that a matmul writes"""
    added: int = 0
    """bytes of these that a library's GEMM reads at its end, to add to the result"""
    elements: int = 0
    """elements of the largest result"""
    operations: int = 0
    """elementwise arithmetic on floats and integers, outside matmuls"""
    transcendentals: int = 0
    gemm: Gemm | None = None
    """the matmul; for pallas, those of all programs: tiles of m × n × k"""
    is_triton: bool = False
    is_untuned: bool = False
    """a Triton GEMM with the tile of a compile without a GPU: the autotuner has not chosen yet"""
    unfused: int = 0
    """bytes that other kernels would write and read again, were its GEMM a library's"""
    transposed: int = 0
    """bytes of fp8 operands that a library wants the other way round: it reads both along k"""
    form: str = "forward"
    """for attention: forward or backward; for a convolution: forward, input or filter"""
    is_causal: bool = False
    channels: int = 0
    """input features of a convolution; for a scatter, bits per element, 1 for single elements"""
    reduced: int = 0
    """for rows: elements of all rows"""
    pressure: float = 0.0
    """for rows: values that a thread keeps while it waits for a row's reduction, of a Triton tile:
    many leave room for few blocks on an SM, or don't fit in registers"""
    apart: int = 1
    """for rows: rows of a tile that lie apart in memory and share a mask (causal attention)"""
    is_scattered: bool = False
    """for rows: whether the result is transposed, so that few elements are written together"""
    strided: int = 0
    """elements that a transpose reads through another transpose, with a stride"""
    programs: int = 0
    """for pallas: programs of the grid"""
    longest: float = 1.0
    """for pallas: matmul work of the longest program over the mean"""
    is_least: bool = False
    """for pallas: whether loops of unknown length count once, so that there may be more work"""
    window: int = 0
    """for attention: keys that a query attends to at most; 0 if all"""
