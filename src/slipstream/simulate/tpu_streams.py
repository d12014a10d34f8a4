"""Where asynchronous operations of a TPU run, beside its cores.

XLA Ops     the TensorCores, one operation after the other
DMA         copies between HBM and VMEM, at the bandwidth of HBM, in their order
ICI 1 … 8   collectives; those that use the same axis of the torus share it
DCN 1 … 8   transfers to other slices
host        copies to and from the host
"""

from __future__ import annotations

from slipstream.machines.tpu.slices import is_slice_transfer
from slipstream.profile.program import Instruction
from slipstream.simulate.overheads import Overheads
from slipstream.simulate.streams import SAME_SIDE, Streams, communicates, direction

AT_ONCE = 8
"""collectives, or transfers, in flight; more wait for one to end"""
NO_OVERHEADS = Overheads(
    launch_us=0.0,
    graph_us=0.0,
    latency_us=0.0,
    gap_us=0.0,
    graph_gap_us=0.0,
    library_us=0.0,
    wake_us=0.0,
    read_us=0.0,
)
"""a TPU runs a whole program by itself, and XLA's cycles contain the start of each operation"""


class TpuStreams(Streams):
    """The stream of every asynchronous start of a program for TPUs."""

    def _name(self, start: Instruction) -> str:
        if communicates(self.program, start):
            self._next += 1
            kind = "DCN" if is_slice_transfer(start) else "ICI"
            return f"{kind} {self._next % AT_ONCE + 1}"
        return "DMA" if direction(self.program, start) == SAME_SIDE else "host"
