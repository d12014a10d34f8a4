"""A machine: its GPUs or TPUs, and the links and network between them.

2x4x8xH100      2 slices × 4 hosts × 8 GPUs      inside a host: NVLink; between: the network
  4x8xH200      1 slice  × 4 hosts × 8 GPUs
     8xB200     1 slice  × 1 host  × 8 GPUs
2xv5e:16x16     2 slices × 256 TPUs              inside a slice: a torus; between: the network
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from slipstream.errors import BadInput

BASES = ("measured", "calibrated", "compiler", "modelled", "default")
"""the basis of a cost, best first: a profile of this program, measurements of this machine's
kernels or links, the cycles that XLA:TPU wrote into the program, a model with published figures,
or a guess"""
BASIS_NAMES = {"compiler": "XLA's own cycles"}
"""what people read, where it is not the basis itself"""


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
class Tpu:
    """One TPU model, as a device that JAX shows; rates are published peaks, one direction.

    A device is a chip, except for TPU7x: half of a chip, with its own core and memory.
    """

    name: str
    """as in JAX's topologies: `v5p`"""
    full_name: str
    """JAX's device kind: `TPU v5`"""
    memory_bytes: int
    """HBM that XLA gives to a program"""
    memory_bandwidth: float
    peak_flops: Mapping[str, float]
    """of products, by element type (`bf16`, `f32`, `f8`, `s8`)"""
    cores: int
    """TensorCores"""
    clock_hz: float
    """the clock of XLA's estimated cycles"""
    vmem_bytes: int
    """scratchpad memory of all cores"""
    host_bandwidth: float
    """to and from host memory"""
    ici_bandwidth: float
    """one link between two chips"""
    ici_links: int
    """links of a chip: two along each axis of the torus"""
    ici_share: float
    """share of a link's peak that collectives reach"""
    ici_hop_us: float
    """latency of one link"""
    devices_per_chip: int = 1
    """devices that share the links of a chip"""
    host_shape: tuple[int, ...] = (2, 2, 1)
    """chips of a host along each axis"""
    sources: tuple[str, ...] = ()
    link: str = "ici"

    @property
    def link_bandwidth(self) -> float:
        """All links of the chip together."""
        return self.ici_bandwidth * self.ici_links

    def at(self, share: float) -> Tpu:
        """This TPU at a share of its clock, with the peaks of that clock."""
        peaks = {dtype: peak * share for dtype, peak in self.peak_flops.items()}
        return replace(self, clock_hz=self.clock_hz * share, peak_flops=peaks)


@dataclass(frozen=True)
class Torus:
    """How links connect the chips of a slice: each to its neighbours along every axis."""

    shape: tuple[int, ...]
    """chips along each axis"""
    wraps: tuple[bool, ...]
    """along which axes the last chip is linked to the first"""

    @property
    def chips(self) -> int:
        return math.prod(self.shape)

    def __str__(self) -> str:
        return "x".join(map(str, self.shape))


@dataclass(frozen=True)
class Fabric:
    """The network between hosts; bandwidth is per device and direction."""

    name: str
    """`infiniband`, `ethernet` (RoCE), `efa`, `sockets`, or `dcn` between slices of TPUs"""
    bandwidth: float
    latency_us: float
    """of a small message between devices of two hosts, as NCCL or Megascale sees it"""
    sources: tuple[str, ...] = ()


@dataclass(frozen=True)
class Machine:
    """GPUs or TPUs, hosts and slices, and the measurements that calibrate the models."""

    spec: str
    chip: Gpu | Tpu
    network: Fabric
    slices: int = 1
    hosts: int = 1
    """hosts of one slice"""
    gpus_per_host: int = 1
    """devices of a host, as JAX counts them"""
    calibration: Mapping[str, object] = field(default_factory=dict)
    """what `machines calibrate` measured; empty if uncalibrated"""
    activity: float = 1.0
    """energy of operations on the program's values, relative to those of training: constant or
    correlated values change fewer bits and allow a higher clock"""
    torus: Torus | None = None
    """of a slice of TPUs"""

    @property
    def kind(self) -> str:
        """`gpu` or `tpu`."""
        return "tpu" if isinstance(self.chip, Tpu) else "gpu"

    @property
    def gpu(self) -> Gpu:
        """The GPU; BadInput if this machine has TPUs."""
        if isinstance(self.chip, Tpu):
            raise BadInput(f"{self.spec} has TPUs, and this is known of GPUs only")
        return self.chip

    @property
    def tpu(self) -> Tpu:
        """The TPU; BadInput if this machine has GPUs."""
        if isinstance(self.chip, Gpu):
            raise BadInput(f"{self.spec} has GPUs, and this is known of TPUs only")
        return self.chip

    def at(self, share: float) -> Machine:
        """This machine with its devices at a share of their highest clock."""
        return replace(self, chip=self.chip.at(share))

    @property
    def devices(self) -> int:
        return self.slices * self.hosts * self.gpus_per_host

    @property
    def topology(self) -> str:
        """In XLA's notation: partitions × hosts × devices per host, or JAX's name of a torus."""
        if self.torus is not None:
            slices = f"{self.slices}x" if self.slices > 1 else ""
            return f"{slices}{self.chip.name}:{self.torus}"
        return f"{self.slices}x{self.hosts}x{self.gpus_per_host}"

    @property
    def link_domain(self) -> int:
        """The number of consecutive devices that the link connects: of a host, rack or slice."""
        if isinstance(self.chip, Tpu):
            return self.hosts * self.gpus_per_host
        return max(self.gpus_per_host, self.chip.link_domain)

    @property
    def host_network_bandwidth(self) -> float:
        """Of all devices of a host together, in one direction."""
        return self.network.bandwidth * self.gpus_per_host

    def host_of(self, device: int) -> int:
        """The host of a device, counted over all slices."""
        return device // self.gpus_per_host

    def domain_of(self, device: int) -> int:
        """The link domain of a device; only the network connects two domains."""
        return device // self.link_domain
