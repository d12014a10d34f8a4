"""What launching costs, besides the work that is launched.

host        │launch│launch│launch│             a graph is one launch
compute      ···▒▒▒▒▒·▒▒▒▒▒▒▒▒        ░▒▒▒▒    · gap between kernels   ░ wake-up after a wait
copy stream        ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒

The defaults are typical of the recordings in tests/data (one H200, CUDA 13, jaxlib 0.11.2): the
time between the end of a kernel and the start of the next one on its stream where the host is
ahead, between the kernels of one instruction, between the end of an awaited copy and the next
kernel, and, where the host is not ahead, between launches.
"""

from __future__ import annotations

from dataclasses import dataclass

from slipstream.machines.machine import Machine


@dataclass(frozen=True)
class Overheads:
    """Microseconds, each."""

    launch_us: float = 3.0
    """of the host's thread, for one kernel outside graphs"""
    graph_us: float = 12.0
    """of the host's thread, for one graph"""
    latency_us: float = 4.0
    """from a launch to its start on an idle device"""
    gap_us: float = 1.2
    """between two kernels of a stream"""
    graph_gap_us: float = 0.35
    """between two kernels of a graph"""
    library_us: float = 2.2
    """inside a call of cuBLAS or cuDNN: it clears memory, then multiplies"""
    wake_us: float = 7.0
    """from the end of what was awaited to the next kernel"""
    read_us: float = 20.0
    """for the host to learn a loop's condition or a conditional's branch from the device"""
    channels: int = 16
    """streaming multiprocessors that a collective keeps for itself while it runs; NCCL's rings use
    16 to 32 thread blocks (NCCL_MAX_CTAS, docs.nvidia.com/deeplearning/nccl/user-guide)"""

    def slowdown(self, machine: Machine) -> float:
        """The share of a kernel's speed that a collective beside it takes."""
        return min(0.5, self.channels / machine.gpu.cores)
