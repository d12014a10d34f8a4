"""Target configurations: what XLA's compiler must know of a device, as text.

GPU   a GpuTargetConfigProto; only with fields that every supported plugin knows (jaxlib 0.10.2 to
      0.12.0.1), because a plugin rejects the whole configuration for a single unknown field
TPU   JSON: options of JAX's topology, and the device kind
"""

from __future__ import annotations

import json
import re
from typing import Any

from slipstream.errors import BadInput
from slipstream.machines.machine import Gpu, Machine, Tpu

CUDA_MAJOR = 13
DNN_VERSION = (9, 19)
"""the cuDNN that jaxlib's CUDA 13 plugins are built with, so that no pass disables itself"""

ARCHITECTURES = {
    (8, 0): {"shared": 167936, "optin": 166912, "fpus": 64, "extension": ""},
    (9, 0): {"shared": 233472, "optin": 232448, "fpus": 128, "extension": "ACCELERATED_FEATURES"},
    (10, 0): {"shared": 233472, "optin": 232448, "fpus": 128, "extension": "ACCELERATED_FEATURES"},
    (10, 3): {"shared": 233472, "optin": 232448, "fpus": 128, "extension": "ACCELERATED_FEATURES"},
}
"""by compute capability, from openxla/xla: xla/backends/gpu/target_config/specs"""


def target_config(machine: Machine | Gpu, exact: str | None = None) -> str:
    """A configuration; `exact`, a local GPU's own, takes precedence."""
    if exact is not None:
        return exact
    if isinstance(machine, Machine) and machine.kind == "tpu":
        return _tpu_config(machine)
    gpu = machine.gpu if isinstance(machine, Machine) else machine
    architecture = ARCHITECTURES.get(gpu.compute_capability)
    if architecture is None:
        raise BadInput(
            f"there is no target configuration for compute capability "
            f"{'.'.join(map(str, gpu.compute_capability))} ({gpu.name}); known: "
            + ", ".join(".".join(map(str, known)) for known in ARCHITECTURES)
        )
    extension = architecture["extension"]
    major, minor = gpu.compute_capability
    lines = [
        "gpu_device_info {",
        "  threads_per_block_limit: 1024",
        "  threads_per_warp: 32",
        "  shared_memory_per_block: 49152",
        f"  shared_memory_per_core: {architecture['shared']}",
        "  threads_per_core_limit: 2048",
        f"  core_count: {gpu.cores}",
        f"  fpus_per_core: {architecture['fpus']}",
        "  block_dim_limit_x: 2147483647",
        "  block_dim_limit_y: 65535",
        "  block_dim_limit_z: 65535",
        f"  memory_bandwidth: {int(gpu.memory_bandwidth)}",
        f"  l2_cache_size: {gpu.l2_bytes}",
        f"  clock_rate_ghz: {gpu.clock_hz / 1e9:g}",
        f"  device_memory_size: {gpu.memory_bytes}",
        f"  shared_memory_per_block_optin: {architecture['optin']}",
        "  cuda_compute_capability {",
        f"    major: {major}",
        *([f"    minor: {minor}"] if minor else []),
        *([f"    feature_extension: {extension}"] if extension else []),
        "  }",
        "  registers_per_core_limit: 65536",
        "  registers_per_block_limit: 65536",
        "}",
        'platform_name: "CUDA"',
        "dnn_version_info {",
        f"  major: {DNN_VERSION[0]}",
        f"  minor: {DNN_VERSION[1]}",
        "}",
        f'device_description_str: "{gpu.full_name}"',
        "runtime_version {",
        f"  major: {CUDA_MAJOR}",
        "}",
    ]
    return "\n".join(lines) + "\n"


def _tpu_config(machine: Machine) -> str:
    tpu, torus = machine.tpu, machine.torus
    assert torus is not None
    host = tpu.host_shape if torus.chips > 1 else (1,) * len(torus.shape)
    options = {
        "topology_name": f"{tpu.name}:{torus}",
        "num_slices": machine.slices,
        "chip_config_name": "megacore" if _is_megacore(tpu) else "default",
        "chips_per_host_bounds": _three(host, 1),
        "wrap": _three(torus.wraps, False),
    }
    device = {"device_kind": tpu.full_name, "cores": tpu.cores}
    return json.dumps({"platform": "tpu", **device, "options": options})


def _is_megacore(tpu: Tpu) -> bool:
    """Whether two cores of a chip act as one device."""
    return tpu.cores > 1


def _three(values: tuple[Any, ...], rest: Any) -> list[Any]:
    """JAX's options have three axes, always."""
    return [*values, *[rest] * (3 - len(values))]


def tpu_config(config: str) -> dict[str, Any] | None:
    """`device_kind`, `cores` and JAX's `options` of a TPU's configuration; None for a GPU's."""
    if not config.startswith("{"):
        return None
    found: dict[str, Any] = json.loads(config)
    return found


def capability_of(config: str) -> tuple[int, int]:
    """The compute capability in a GpuTargetConfigProto as text."""
    major, minor, _ = _numbers(config, "cuda_compute_capability")
    return major, minor


def cores_of(config: str) -> int:
    """The number of SMs in a GpuTargetConfigProto as text."""
    found = re.search(r"\bcore_count\s*:\s*(\d+)", config)
    return int(found[1]) if found else 0


def model_of(config: str) -> str:
    """The driver's name of the GPU in a GpuTargetConfigProto as text."""
    found = re.search(r'\bdevice_description_str\s*:\s*"([^"]*)"', config)
    return found[1] if found else ""


def cudnn_of(config: str) -> int:
    """The version of cuDNN in a GpuTargetConfigProto as text, in cuDNN's notation: 91900."""
    major, minor, patch = _numbers(config, "dnn_version_info")
    return major * 10000 + minor * 100 + patch


def _numbers(config: str, name: str) -> tuple[int, int, int]:
    """major, minor and patch of a message; absent ones are 0, as in any proto."""
    _, _, rest = config.partition(name)
    inside = rest.partition("{")[2].partition("}")[0]
    stated = {key: int(value) for key, value in re.findall(r"(\w+)\s*:\s*(\d+)", inside)}
    return stated.get("major", 0), stated.get("minor", 0), stated.get("patch", 0)
