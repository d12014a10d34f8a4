"""Overheads of launching work.

host        │launch│launch│launch│             a graph is one launch
compute      ···▒▒▒▒▒·▒▒▒▒▒▒▒▒        ░▒▒▒▒    · gap between kernels   ░ wake-up after a wait
copy stream        ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒

The defaults are typical of the recordings in tests/data (one H200, CUDA 13, jaxlib 0.11.2): the
time between a kernel's end and the next start on its stream while the host is ahead, between the
kernels of one instruction, between the end of an awaited copy and the next kernel, and, if the host
is not ahead, between launches.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Overheads:
    """In microseconds, where names say so."""

    launch_us: float = 3.0
    """host time to launch one kernel outside graphs"""
    graph_us: float = 12.0
    """host time to launch one graph"""
    latency_us: float = 4.0
    """from a launch to the start on an idle device"""
    gap_us: float = 1.2
    """between two kernels of a stream"""
    graph_gap_us: float = 0.35
    """between two kernels of a graph"""
    library_us: float = 2.2
    """inside a cuBLAS or cuDNN call, which clears memory before it multiplies"""
    wake_us: float = 7.0
    """from the end of an awaited operation to the next kernel"""
    read_us: float = 20.0
    """for the host to read a loop's condition or a conditional's branch from the device"""
    contention: float = 1.0
    """how much of the mutual slowdown of kernels and collectives (`contention`) counts; 0: none"""
