"""Compile StableHLO to an optimised program: the call that runs XLA."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slipstream.jaxhooks.compiling import (
    compile_options,
    device_list,
    parsed,
    topology_of,
    with_memory_pool,
)
from slipstream.jaxhooks.custom_partitioning import ANSWERED, replay

_SHARDINGS = ("sdy.sharding", "mhlo.sharding")
_FRONTEND, _DUMPED_MESHES = "mhlo.frontend_attributes", "xla.sdy.meshes"
_SHARDY_CALL = "@xla.sdy."
_UNREGISTERED = "No FFI handler registered for"
_NUMBERS = ("optimization_level", "memory_fitting_level")
_EFFORTS = ("exec_time_optimization_effort", "memory_fitting_effort")


@dataclass(frozen=True)
class Compiled:
    """The result of a compile."""

    proto: bytes
    memory: Mapping[str, int]
    devices: int


class TooManyDevices(Exception):
    """A program for more devices than the machine has."""


def compile_program(stablehlo: bytes, devices: Sequence[Any], **request: Any) -> Compiled:
    """Compile a program; where XLA lacks the kernels of a library, their names suffice."""
    from jax.errors import JaxRuntimeError

    try:
        return compile_module(stablehlo, devices, **request)
    except JaxRuntimeError as error:
        if _UNREGISTERED not in str(error):
            raise
    from slipstream.jaxhooks.custom_calls import with_stubs

    plain, names = with_stubs(stablehlo)
    return compile_module(plain, devices, **{**request, "unknown_calls": names})


def compile_module(
    stablehlo: bytes,
    devices: Sequence[Any],
    *,
    options: Mapping[str, str],
    order: Sequence[int] = (),
    partitions: int | None = None,
    replicas: int | None = None,
    is_partitioned: bool = False,
    unknown_calls: Sequence[str] = (),
    use_gpu: bool = False,
    memory_pool: int | None = None,
) -> Compiled:
    """Compile for the first devices of a topology, in the order of the mesh if known.

    `memory_pool` are the bytes of a device that XLA may plan with.
    """
    if unknown_calls:
        from slipstream.jaxhooks.custom_calls import register_stubs

        register_stubs(unknown_calls)
    if ANSWERED.encode() in stablehlo:
        replay()
    client = devices[0].client
    with parsed(stablehlo) as (module, ir):
        attributes = module.operation.attributes
        partitions = partitions or _integer(attributes, "mhlo.num_partitions")
        replicas = replicas or _integer(attributes, "mhlo.num_replicas")
        chosen = _choose(devices, order, partitions * replicas)
        settings = _settings(client, chosen, replicas, partitions, options)
        if memory_pool is not None:
            settings = with_memory_pool(settings, memory_pool)
        build = settings.executable_build_options
        build.use_spmd_partitioning = not is_partitioned
        build.use_shardy_partitioner = _uses_shardy(module)
        inputs, outputs = _free_shardings(module, ir)
        if inputs is not None:
            build.allow_spmd_sharding_propagation_to_parameters = inputs
            build.allow_spmd_sharding_propagation_to_output = outputs
        executable = _compile(client, module, chosen, settings, use_gpu)
    (program,) = executable.hlo_modules()
    memory = memory_of(executable.get_compiled_memory_stats(), chosen[0].platform)
    return Compiled(program.as_serialized_hlo_module_proto(), memory, len(chosen))


def _compile(client: Any, module: Any, devices: list[Any], settings: Any, use_gpu: bool) -> Any:
    if use_gpu:
        # A client with a GPU autotunes kernels on it, for any topology.
        import jax

        topology = topology_of(devices)
        real = jax.devices("gpu")[0].client
        return real.compile(module, topology=topology, compile_options=settings)
    return client.compile(module, executable_devices=device_list(devices), compile_options=settings)


def _settings(
    client: Any,
    devices: list[Any],
    replicas: int,
    partitions: int,
    options: Mapping[str, str],
) -> Any:
    import numpy as np

    typed: dict[str, Any] = dict(options)
    typed |= {name: int(options[name]) for name in _NUMBERS if name in options}
    typed |= {name: float(options[name]) for name in _EFFORTS if name in options}
    ids = np.array([device.id for device in devices]).reshape(replicas, partitions)
    return compile_options(replicas, partitions, ids, typed, client)


def _choose(devices: Sequence[Any], order: Sequence[int], count: int) -> list[Any]:
    if count > len(devices):
        raise TooManyDevices(f"{count} {len(devices)}")
    by_id = {device.id: device for device in devices}
    if len(order) == count and all(one in by_id for one in order):
        return [by_id[one] for one in order]
    return list(devices[:count])


def _integer(attributes: Any, name: str) -> int:
    return int(attributes[name].value) if name in attributes else 1


def _uses_shardy(module: Any) -> bool:
    """Whether a program uses Shardy, also as XLA dumps it; older programs have GSPMD shardings."""
    attributes = module.operation.attributes
    if _FRONTEND in attributes and _DUMPED_MESHES in str(attributes[_FRONTEND]):
        return True
    if any(op.operation.name == "sdy.mesh" for op in module.body.operations):
        return True
    # From JAX 0.12 on, dumps have meshes in their shardings, and `shard_map` is calls of Shardy's.
    return _SHARDY_CALL in module.operation.get_asm(large_elements_limit=16)


def _free_shardings(module: Any, ir: Any) -> tuple[list[bool] | None, list[bool] | None]:
    """Which arguments and results XLA may shard freely: those without a sharding."""
    for op in module.body.operations:
        if op.operation.name == "func.func" and _name(op, ir) == "main":
            kind = ir.FunctionType(ir.TypeAttr(op.attributes["function_type"]).value)
            inputs = _free(op, "arg_attrs", len(kind.inputs))
            return inputs, _free(op, "res_attrs", len(kind.results))
    return None, None


def _name(op: Any, ir: Any) -> str:
    return str(ir.StringAttr(op.attributes["sym_name"]).value)


def _free(op: Any, attribute: str, count: int) -> list[bool]:
    if attribute not in op.attributes:
        return [True] * count
    return [_is_free(one) for one in op.attributes[attribute]]


def _is_free(attributes: Any) -> bool:
    stated = [str(attributes[name]) for name in _SHARDINGS if name in attributes]
    return not stated or any("?" in sharding for sharding in stated)


def memory_of(stats: Any, platform: str) -> dict[str, int]:
    """What one device needs, as in `MemoryUse`."""
    host = ("argument", "output", "temp", "generated_code")
    return {
        "arguments_bytes": stats.argument_size_in_bytes,
        "outputs_bytes": stats.output_size_in_bytes,
        "temporaries_bytes": _temporaries(stats, platform),
        "code_bytes": stats.generated_code_size_in_bytes,
        "aliased_bytes": stats.alias_size_in_bytes,
        "host_bytes": sum(getattr(stats, f"host_{name}_size_in_bytes", 0) for name in host)
        - getattr(stats, "host_alias_size_in_bytes", 0),
    }


def _temporaries(stats: Any, platform: str) -> int:
    """XLA:TPU adds up temporaries that are never alive at once; its peak is what has to fit.

    (A step that it accepts for 16.9 GB: 18.3 GB of temporaries, a peak of 13.2 GB.)
    """
    everything = int(stats.temp_size_in_bytes)
    if platform != "tpu":
        return everything
    kept = stats.argument_size_in_bytes + stats.output_size_in_bytes - stats.alias_size_in_bytes
    return min(everything, max(0, int(stats.peak_memory_in_bytes) - int(kept)))
