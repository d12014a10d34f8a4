"""A machine: its GPUs, and the links and network between them.

2x4x8xH100      2 slices × 4 hosts × 8 GPUs      inside a host: NVLink; between: the network
  4x8xH200      1 slice  × 4 hosts × 8 GPUs
     8xB200     1 slice  × 1 host  × 8 GPUs
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

BASES = ("measured", "calibrated", "modelled", "default")
"""the basis of a cost, best first: a profile of this program, measurements of this machine's
kernels or links, a model with published figures, or a guess"""


@dataclass(frozen=True)
class Estimate:
    """The time of one execution of an instruction, and its basis."""

    us: float
    basis: str
    """one of BASES"""
    kind: str = ""
    """kind of work: gemm, fusion, attention, convolution, kernel (Pallas), copy, collective,
    launch, other"""
    why: str = ""
    """short explanation: `512 MB at 71% of 4.8 TB/s`"""


@dataclass(frozen=True)
class Gpu:
    """One GPU model; rates are published peaks: per second, dense, one direction."""

    name: str
    """the usual name: `H200`"""
    full_name: str
    """the driver's name: `NVIDIA H200`"""
    compute_capability: tuple[int, int]
    memory_bytes: int
    memory_bandwidth: float
    peak_flops: Mapping[str, float]
    """by element type (`bf16`, `f16`, `f32`, `tf32`, `f64`, `f8`, `s8`), tensor cores where used"""
    cores: int
    """streaming multiprocessors"""
    clock_hz: float
    link_bandwidth: float
    """to the other GPUs of the host: all NVLinks together, or PCIe"""
    host_bandwidth: float
    """to and from host memory"""
    link: str = "nvlink"
    """`nvlink` (direct or switched), `nvswitch` with in-switch reductions (NVLS), or `pcie`"""
    sources: tuple[str, ...] = ()
    l2_bytes: int = 0
    link_domain: int = 0
    """GPUs that the link connects if it reaches beyond a host (72 in an NVL72 rack); otherwise 0"""
    gpus_per_host: int = 8
    """as vendors build hosts; `64xH200` is divided by it"""
    power_w: float = 0.0
    """the power cap; 0 if unknown, and then the clock is the highest"""
    static_w: float = 0.0
    """power without work; 0 for the share of the cap that it is on an H200"""
    peak_clock_hz: float = 0.0
    """the clock that tensor cores' `peak_flops` are stated for; 0 if it is `clock_hz`, the
    highest, as it is for f32 and f64"""

    def at(self, share: float) -> Gpu:
        """This GPU at a share of its highest clock, with the peaks of that clock."""
        tensor = share * self.clock_hz / (self.peak_clock_hz or self.clock_hz)
        peaks = {
            dtype: peak * (share if dtype in ("f32", "f64") else tensor)
            for dtype, peak in self.peak_flops.items()
        }
        clock = self.clock_hz * share
        return replace(self, clock_hz=clock, peak_clock_hz=clock, peak_flops=peaks)


@dataclass(frozen=True)
class Fabric:
    """The network between hosts; bandwidth is per GPU and direction."""

    name: str
    """`infiniband`, `ethernet` (RoCE), `efa` or `sockets`"""
    bandwidth: float
    latency_us: float
    """of a small message between GPUs of two hosts, as NCCL sees it"""
    sources: tuple[str, ...] = ()


@dataclass(frozen=True)
class Machine:
    """GPUs, hosts and slices, and the measurements that calibrate the models."""

    spec: str
    gpu: Gpu
    network: Fabric
    slices: int = 1
    hosts: int = 1
    """hosts of one slice"""
    gpus_per_host: int = 1
    calibration: Mapping[str, object] = field(default_factory=dict)
    """what `machines calibrate` measured; empty if uncalibrated"""
    activity: float = 1.0
    """energy of operations on the program's values, relative to those of training: constant or
    correlated values change fewer bits and allow a higher clock"""

    def at(self, share: float) -> Machine:
        """This machine with its GPUs at a share of their highest clock."""
        return replace(self, gpu=self.gpu.at(share))

    @property
    def devices(self) -> int:
        return self.slices * self.hosts * self.gpus_per_host

    @property
    def topology(self) -> str:
        """In XLA's notation: partitions × hosts × devices per host."""
        return f"{self.slices}x{self.hosts}x{self.gpus_per_host}"

    @property
    def link_domain(self) -> int:
        """The number of consecutive GPUs that the link connects: those of a host, or of a rack."""
        return max(self.gpus_per_host, self.gpu.link_domain)

    def host_of(self, device: int) -> int:
        """The host of a device, counted over all slices."""
        return device // self.gpus_per_host

    def domain_of(self, device: int) -> int:
        """The link domain of a device; only the network connects two domains."""
        return device // self.link_domain
