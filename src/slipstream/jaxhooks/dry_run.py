"""A job that computes nothing: its large programs are lowered for another device, not run.

    has products ─► lowered for the target ─┐
    large arrays ───────────────────────────┴► compiled for the CPU ─► not run: results are zeros
    neither ─────────────────────────────────► compiled for the CPU ─► run: keys, counters, indices

The CPU's program only says how results are sharded; where that is clear without compiling all of
it, a stand-in is compiled. Zeros are pages that nobody has touched: they
take no memory, and a model of any size starts on any machine. Floating-point scalars, such as
losses, are 1: jobs take their logarithm and divide by them. Devices say that they are the target's.
"""

from __future__ import annotations

import functools
import math
import mmap
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from slipstream.jaxhooks import private_api
from slipstream.jaxhooks.compat import Feature
from slipstream.jaxhooks.compiling import bytecode, parsed
from slipstream.jaxhooks.custom_calls import compilable_for_cpu
from slipstream.jaxhooks.custom_partitioning import ASKING
from slipstream.jaxhooks.stand_in import stand_in
from slipstream.jaxhooks.target_device import TargetGpu, TargetTpu, answering_for

PRODUCTS = ("dot_general", "conv_general_dilated", "ragged_dot", "ragged_dot_general")
"""primitives that a training step has"""
FLOPS_PER_S = 1e9
"""of a slow CPU; calls that are run take real time"""
LARGE_BYTES = 64 << 20
"""of a call's arguments and results, on all devices, from which it is not run"""


class DryRun:
    """Replaces parts of JAX for the rest of the process, before any other hooks."""

    def __init__(self, target: TargetGpu | TargetTpu) -> None:
        self._target = target
        self._answering = answering_for(target)
        self._modules: list[tuple[Any, float]] = []
        """lowered for the target, and their FLOPs"""
        self._executables: list[tuple[Any, float]] = []
        """compiled from these; never run"""

    def install(self) -> None:
        """JaxChanged, and JAX left as it is, if a private part is not as expected."""
        private_api.require(Feature.DRY_RUN, Feature.TARGET_GPU, Feature.WATCHING)
        self._answering.__enter__()  # for good
        _show_devices_as(self._target)
        lower = private_api.LOWER_COMPUTATION.get()
        compile = private_api.COMPILE_OR_GET_CACHED.get()
        run = private_api.EXECUTE_CALL.get()

        @functools.wraps(lower)
        def lowering(jaxpr: Any, *arguments: Any, **named: Any) -> Any:
            return self._lowering(lower, jaxpr, arguments, named)

        @functools.wraps(compile)
        def compiling(backend: Any, computation: Any, *arguments: Any, **named: Any) -> Any:
            return self._compiling(compile, backend, computation, arguments, named)

        @functools.wraps(run)
        def call(replicated: Any, *arguments: Any) -> Any:
            return self._calling(run, replicated, arguments)

        private_api.LOWER_COMPUTATION.replace(lowering)
        private_api.COMPILE_OR_GET_CACHED.replace(compiling)
        private_api.EXECUTE_CALL.replace(call)
        # The fast paths would run programs without asking.
        for part in (private_api.FASTPATH_DATA, private_api.CREATE_CPP_CALL):
            part.replace(functools.wraps(part.get())(lambda *_, **__: None))

    def cpu_seconds(self, executable: Any) -> float:
        """About how long a call that was not run would have taken."""
        return (_of(self._executables, executable) or 0.0) / FLOPS_PER_S

    def _lowering(
        self, lower: Callable[..., Any], jaxpr: Any, arguments: Sequence[Any], named: dict[str, Any]
    ) -> Any:
        flops = product_flops(jaxpr)
        if named["lowering_platforms"] is not None or not flops:
            return lower(jaxpr, *arguments, **named)
        platforms = (self._target.lowering_platform,)
        lowered = lower(jaxpr, *arguments, **{**named, "lowering_platforms": platforms})
        self._modules.append((private_api.LOWERED_COMPUTATION.of(lowered)._hlo, flops))
        return lowered

    def _compiling(
        self,
        compile: Callable[..., Any],
        backend: Any,
        computation: Any,
        arguments: Sequence[Any],
        named: dict[str, Any],
    ) -> Any:
        flops = _of(self._modules, computation)
        if flops is None:
            return compile(backend, computation, *arguments, **named)
        stablehlo = bytecode(computation)
        # Those that ask Python while they are partitioned have to be.
        quick = None if ASKING.encode() in stablehlo else stand_in(stablehlo)
        with parsed(quick or compilable_for_cpu(stablehlo)) as (module, _):
            executable = compile(backend, module, *arguments, **named)
        self._executables.append((executable, flops))
        return executable

    def _calling(self, run: Callable[..., Any], replicated: Any, arguments: Sequence[Any]) -> Any:
        results = private_api.RESULTS_HANDLER.of(replicated.out_handler)
        executable = replicated.xla_executable
        is_for_target = _of(self._executables, executable) is not None
        if not is_for_target and _bytes(arguments, results) < LARGE_BYTES:
            return run(replicated, *arguments)
        devices = executable.local_devices()
        kinds = zip(results.handlers, results.out_avals, results.out_shardings, strict=True)
        made = [handler(_zeros(aval, sharding, devices)) for handler, aval, sharding in kinds]
        if replicated.mut is None:
            return made
        # References keep what they hold.
        indices = replicated.mut.out_mut
        return [one for one, index in zip(made, indices, strict=True) if index is None]


def _of(pairs: Sequence[tuple[Any, float]], one: Any) -> float | None:
    return next((value for other, value in pairs if other is one), None)


def _show_devices_as(target: TargetGpu | TargetTpu) -> None:
    """Jobs ask for the platform: to refuse a CPU, or to choose sizes and kernels."""
    device = private_api.DEVICE.get()
    for name in ("platform", "device_kind", "core_count", "compute_capability"):
        if hasattr(target, name):
            setattr(device, name, _constant(getattr(target, name)))
    jax: Any = import_module("jax")
    jax.default_backend = lambda: target.platform
    for name in ("devices", "local_devices", "device_count", "local_device_count"):
        names = (target.platform, target.lowering_platform)
        setattr(jax, name, _of_any_platform(getattr(jax, name), names))


def _constant(value: Any) -> property:
    return property(lambda device: value)


def _of_any_platform(function: Callable[..., Any], names: Sequence[str]) -> Callable[..., Any]:
    """`jax.devices("gpu")` is `jax.devices()`."""

    @functools.wraps(function)
    def asked(*arguments: Any, **named: Any) -> Any:
        plain = [None if one in names else one for one in arguments]
        return function(*plain, **{k: None if v in names else v for k, v in named.items()})

    return asked


def product_flops(jaxpr: Any) -> float:
    """About as many as the products of a function have, at any depth; 0 if it has none."""
    jaxpr = getattr(jaxpr, "jaxpr", jaxpr)  # of a closed one
    total = 0.0
    for equation in jaxpr.eqns:
        if equation.primitive.name in PRODUCTS:
            left, right, *_ = (variable.aval for variable in equation.invars)
            # Each is read once for each element of what only the other has.
            sizes = (math.prod(one.shape) for one in (left, right, equation.outvars[0].aval))
            total += 2.0 * math.sqrt(math.prod(map(float, sizes)))
        times = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
        for value in equation.params.values():
            some = value if isinstance(value, (tuple, list)) else (value,)
            total += sum(times * product_flops(inner) for inner in some if _is_jaxpr(inner))
    return total


def _is_jaxpr(value: Any) -> bool:
    return hasattr(getattr(value, "jaxpr", value), "eqns")


def _bytes(arguments: Sequence[Any], results: Any) -> int:
    """Of a call's arrays, each once for every device that holds all of it."""
    given = sum(_array_bytes(one, getattr(one, "sharding", None)) for one in arguments)
    avals = zip(results.out_avals, results.out_shardings, strict=True)
    return given + sum(_array_bytes(aval, sharding) for aval, sharding in avals)


def _array_bytes(array: Any, sharding: Any) -> int:
    if sharding is None or not hasattr(array, "shape"):
        return 0
    shard = int(math.prod(sharding.shard_shape(array.shape)))
    return shard * int(array.dtype.itemsize) * len(sharding.device_set)


def _zeros(aval: Any, sharding: Any, devices: Sequence[Any]) -> list[Any]:
    """A result as JAX gets it from XLA: an array for each device."""
    import numpy as np

    jax: Any = import_module("jax")
    shape = sharding.shard_shape(aval.shape)
    if jax.dtypes.issubdtype(aval.dtype, jax.dtypes.extended):
        # A random key consists of integers.
        physical = jax.eval_shape(jax.random.key_data, jax.ShapeDtypeStruct(shape, aval.dtype))
        shape, dtype = physical.shape, physical.dtype
    else:
        dtype = aval.dtype
    is_loss = not aval.shape and jax.dtypes.issubdtype(dtype, np.floating)
    page = np.ones(shape, dtype) if is_loss else _untouched(tuple(shape), np.dtype(dtype))
    kind = sharding.memory_kind
    places = [jax.sharding.SingleDeviceSharding(device, memory_kind=kind) for device in devices]
    return list(jax.device_put([page] * len(places), places))


@functools.cache
def _untouched(shape: tuple[int, ...], dtype: Any) -> Any:
    """Zeros without memory behind them, until somebody writes."""
    import numpy as np

    size = math.prod(shape) * dtype.itemsize
    if size < mmap.PAGESIZE:
        return np.zeros(shape, dtype)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    return np.frombuffer(mmap.mmap(-1, size, flags=flags), dtype)[: math.prod(shape)].reshape(shape)
