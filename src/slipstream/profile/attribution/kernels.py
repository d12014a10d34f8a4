"""What the name of a kernel or copy reveals: its kind, its part in a library call, its family.

kind     NAMED       compiled by XLA, named after an instruction (known only with a program)
         LIBRARY     cuBLAS, cuDNN, CUB, …: one call may launch several kernels
         COPY        a memory copy, by the copy engine or (inside graphs) by a kernel
         MEMSET      clears memory, mostly ahead of a library kernel
         COLLECTIVE  NCCL, RCCL, NVSHMEM, and XLA's own for one node
part     BEFORE, MAIN, AFTER in one library call: clear and pad · multiply · reduce and convert
family   what a library kernel computes, if its name says so
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

LIBRARY, COPY, MEMSET, COLLECTIVE, NAMED = range(5)
BEFORE, MAIN, AFTER, ANY = range(4)
NO_FAMILY, FORWARD_CONV, INPUT_GRAD, FILTER_GRAD, ATTENTION, ATTENTION_GRAD, MATMUL = range(7)
GATHER, REDUCE, SCATTER, EXCHANGE, BROADCAST = range(7, 12)
SAME_SIDE, TO_DEVICE, TO_HOST = range(3)

_COLLECTIVE = r"nccl|rccl|nvshmem|mscclpp"
_COLLECTIVE += r"|stream_executor.*(AllReduce|RaggedAllToAll|MultiGpuBarrier)\w*KernelImpl"
_COPY = r"^(Memcpy|memcpy\d*|__amd_rocclr_copy|Copy(Host|Device)|hipMemcpy)"
_MEMSET = r"^(Memset|memset\d*|__amd_rocclr_fill|hipMemset)"
_TO_DEVICE = r"H2D|HtoD|HostToDevice"
_TO_HOST = r"D2H|DtoH|DeviceToHost"
_AFTER = r"splitK_?reduce|split_k_kernel|reduce_1Block|reduction::|convert_dq|ToNchw|RemovePadding"
_AFTER += r"|unpad"
_BEFORE = r"init_device_work|AddPadding|ToNhwc|compute_dot_do_o|pad_kernel|offset"
_FAMILIES = (
    (ATTENTION_GRAD, r"(sdpa|fmha|flash|attention).*(bprop|bwd|backward)"),
    (ATTENTION, r"sdpa|fmha|flash_|attention"),
    (FILTER_GRAD, r"wgrad|bwd_filter|backward_?filter"),
    (INPUT_GRAD, r"dgrad|bwd_data|backward_?data"),
    (FORWARD_CONV, r"fprop|implicit_?conv|winograd|convolve"),
    (MATMUL, r"nvjet|gemm|cublas|xmma|cutlass|Cijk_|matmul"),
)
_COLLECTIVE_FAMILIES = (
    (GATHER, r"AllGather"),
    (SCATTER, r"ReduceScatter"),
    (REDUCE, r"AllReduce"),
    (EXCHANGE, r"SendRecv|AllToAll|Alltoall"),
    (BROADCAST, r"Broadcast"),
)


@dataclass(frozen=True)
class KernelName:
    """What a kernel's or copy's name reveals."""

    kind: int
    part: int = ANY
    family: int = NO_FAMILY
    direction: int = SAME_SIDE


@lru_cache(maxsize=65536)
def classify(name: str) -> KernelName:
    """Kind, part and family of a kernel or copy, from its recorded name."""
    if _says(_COLLECTIVE, name):
        return KernelName(COLLECTIVE, family=_family(name, _COLLECTIVE_FAMILIES))
    if _says(_COPY, name):
        direction = SAME_SIDE
        if _says(_TO_HOST, name):
            direction = TO_HOST
        elif _says(_TO_DEVICE, name):
            direction = TO_DEVICE
        return KernelName(COPY, direction=direction)
    if _says(_MEMSET, name):
        return KernelName(MEMSET, BEFORE)
    if _says(_AFTER, name):
        return KernelName(LIBRARY, AFTER)
    if _says(_BEFORE, name):
        return KernelName(LIBRARY, BEFORE)
    family = _family(name, _FAMILIES)
    return KernelName(LIBRARY, ANY if family == NO_FAMILY else MAIN, family)


def _says(pattern: str, name: str) -> bool:
    """Whether a name matches; the pattern is compiled on first use, not on import."""
    return re.search(pattern, name, re.I) is not None


def _family(name: str, families: tuple[tuple[int, str], ...]) -> int:
    return next((family for family, pattern in families if _says(pattern, name)), NO_FAMILY)


def copy_bytes(details: str) -> int | None:
    """The size in a copy's details, such as `kind_src:device kind_dst:pinned size:4 dest:0`."""
    found = re.search(r"\bsize:([0-9]{1,18})\b", details)
    return int(found.group(1)) if found else None


def sanitized(instruction: str) -> str:
    """The kernel name that XLA gives an instruction: no dots or dashes."""
    return re.sub(r"[^0-9A-Za-z_]", "_", instruction)
