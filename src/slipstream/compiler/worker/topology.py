"""Devices that XLA can compile for without having them."""

from __future__ import annotations

import os
from typing import Any

from slipstream.compiler.worker.process import TPU_VARIABLES
from slipstream.jaxhooks.compiling import topology_of
from slipstream.machines.machine import Machine
from slipstream.machines.targets import tpu_config

PLATFORM = "cuda"


def devices(on: str | Machine) -> list[Any]:
    """The devices of a machine, to build a mesh in this process; they can't run programs.

    Without a GPU, start Python with JAX_PLATFORMS=cpu.
    """
    from slipstream.compiler.compile import machine_of
    from slipstream.compiler.versions import installed_versions
    from slipstream.machines.targets import target_config

    machine = machine_of(on)
    installed_versions(machine.kind)
    if machine.kind == "tpu":
        for name, value in TPU_VARIABLES.items():
            os.environ.setdefault(name, value)
    return list(describe(machine.topology, target_config(machine)).devices)


def describe(topology: str, target_config: str) -> Any:
    """XLA's description of a topology; JaxRuntimeError if it is invalid."""
    from jax.experimental import topologies

    tpu = tpu_config(target_config)
    if tpu is not None:
        return topologies.get_topology_desc(platform="tpu", **tpu["options"])
    return topologies.get_topology_desc(
        topology_name="", platform=PLATFORM, topology=topology, target_config=target_config
    )


def local_target_config() -> tuple[str, str]:
    """The model and the exact target configuration of the local GPU.

    JAX must run on the GPU in this process.
    """
    import jax

    gpus = jax.devices("gpu")
    described = topology_of(gpus)
    return str(gpus[0].device_kind), str(described.target_config)
