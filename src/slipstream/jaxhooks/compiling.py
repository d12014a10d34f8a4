"""StableHLO read, changed and compiled through JAX's own compiler interface."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from slipstream.jaxhooks import private_api


@contextmanager
def parsed(stablehlo: bytes) -> Iterator[tuple[Any, Any]]:
    """An MLIR module of a program, and MLIR's bindings, for as long as the context is open."""
    ir = private_api.IR.get()
    with private_api.MAKE_IR_CONTEXT.get()() as context, ir.Location.unknown(context):
        yield ir.Module.parse(stablehlo), ir


@contextmanager
def parsed_kernel(code: bytes | str) -> Iterator[Any]:
    """An MLIR module of a kernel of Triton or Mosaic GPU, for as long as the context is open.

    ValueError if it can't be read.
    """
    ir = private_api.IR.get()
    dialects = (private_api.TRITON_DIALECT.get(), private_api.MOSAIC_DIALECT.get())
    with private_api.MAKE_IR_CONTEXT.get()() as context, ir.Location.unknown(context):
        for register in dialects:
            register(context)
        context.allow_unregistered_dialects = True
        try:
            module = ir.Module.parse(code)
        except ir.MLIRError as error:
            raise ValueError(f"not MLIR that this jaxlib reads ({error})") from None
        yield module


def bytecode(module: Any) -> bytes:
    """A module that is open, as bytes."""
    file = io.BytesIO()
    module.operation.write_bytecode(file)
    return file.getvalue()


def stablehlo_text(stablehlo: bytes, **options: Any) -> str:
    """A program as MLIR text; `options` are those of MLIR's `get_asm`."""
    with parsed(stablehlo) as (module, _):
        return str(module.operation.get_asm(**options))


def recompile(
    stablehlo: bytes,
    backend: Any,
    devices: Any,
    options: bytes,
    callbacks: Sequence[Any],
    flags: Mapping[str, str],
    costs: bytes | None,
) -> Any:
    """A program compiled as JAX did, but with other flags, or with costs for XLA's scheduler."""
    changed = private_api.COMPILE_OPTIONS.get().ParseFromString(options)
    changed.env_option_overrides = list((dict(changed.env_option_overrides) | dict(flags)).items())
    if costs is not None:
        changed.executable_build_options.fdo_profile = costs
    compile_and_load = private_api.BACKEND_COMPILE.get()
    with parsed(stablehlo) as (module, _):
        return compile_and_load(backend, module, devices, changed, callbacks)


def overrides_in(options: bytes) -> dict[str, str]:
    """The flags that a program was compiled with beyond those of the process."""
    parsed_options = private_api.COMPILE_OPTIONS.get().ParseFromString(options)
    return {str(name): str(value) for name, value in parsed_options.env_option_overrides}


def costs_in(options: bytes) -> bytes:
    """The costs that a program was compiled with, out of its serialized options."""
    parsed_options = private_api.COMPILE_OPTIONS.get().ParseFromString(options)
    return bytes(parsed_options.executable_build_options.fdo_profile or b"")


def compile_options(
    replicas: int, partitions: int, device_ids: Any, overrides: Mapping[str, Any], client: Any
) -> Any:
    """The options that JAX itself would compile with."""
    return private_api.GET_COMPILE_OPTIONS.get()(
        num_replicas=replicas,
        num_partitions=partitions,
        device_assignment=device_ids,
        env_options_overrides=dict(overrides),
        backend=client,
    )


def with_memory_pool(options: Any, size: int) -> Any:
    """Options for a device of which XLA may use `size` bytes, as jaxlib's client states them.

    Python has no name for that field, and parts of a protobuf message that follow one another are
    one message: so another part with that field alone is added.
    """
    from slipstream.sources.proto_schema import message

    more = message("CompileOptionsProto")()
    more.executable_build_options.device_memory_size = size
    data = options.SerializeAsString() + more.SerializeToString()
    return private_api.COMPILE_OPTIONS.get().ParseFromString(data)


def device_list(devices: Sequence[Any]) -> Any:
    """Devices in the form that XLA's compiler takes."""
    return private_api.DEVICE_LIST.get()(tuple(devices))


def topology_of(devices: Sequence[Any]) -> Any:
    """XLA's description of devices."""
    return private_api.TOPOLOGY_FOR_DEVICES.get()(devices)


def register_custom_call(name: str, capsule: Any, platform: str) -> None:
    """A function that XLA may call by name."""
    register = private_api.REGISTER_CUSTOM_CALL.get()
    register(name, capsule, platform=platform, api_version=0)


def lowered_for(lowered: Any) -> tuple[tuple[int, ...], dict[str, str]]:
    """Ids of the devices that a function was lowered for, and its compiler options."""
    private_api.LOWERED_TO_COMPILE.get()
    lowering = private_api.LOWERING_TO_COMPILE.of(lowered._lowering)
    devices = lowering._device_list
    ids = tuple(int(device.id) for device in devices) if devices is not None else ()
    return ids, {name: str(value) for name, value in lowering._compiler_options_kvs}
