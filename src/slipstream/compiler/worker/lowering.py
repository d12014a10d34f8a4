"""Lower functions to StableHLO for GPUs and TPUs, on any platform.

plain function ──jit──► jitted ──trace──► jaxpr ──lower for cuda or tpu──► StableHLO, device ids
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from slipstream.compiler.worker.cost_estimates import equations, estimates_of, with_estimates
from slipstream.compiler.worker.keywords import typed_keywords
from slipstream.jaxhooks.compiling import bytecode, lowered_for
from slipstream.jaxhooks.target_device import (
    TargetGpu,
    TargetTpu,
    abstract_device,
    answering_for,
    needs_abstract_device,
)
from slipstream.machines.targets import capability_of, cores_of, cudnn_of, model_of, tpu_config

T = TypeVar("T")


@dataclass(frozen=True)
class Lowered:
    """A program before it is compiled."""

    stablehlo: bytes
    devices: tuple[int, ...]
    """ids in the order of the mesh; empty for an abstract mesh or a single device"""
    options: Mapping[str, str] = field(default_factory=dict)


class WrongTarget(Exception):
    """A target function that returns something that can't be compiled."""


class GpuOnly(Exception):
    """A function with kernels that can't be lowered for TPUs."""


def lower(function: Any, arguments: tuple[Any, ...], target_config: str) -> Lowered:
    """Lower a function, jitted or not, or the result of its `.lower()` or `.trace()`.

    `target_config` describes the device that it is lowered for (see `machines.targets`).
    """
    if hasattr(function, "compiler_ir"):
        return _as_lowered(function)
    platform = target_device(target_config).lowering_platform
    return _for_target(target_config, lambda: _lower(_trace(function, arguments), platform))


def traced(function: Any, arguments: tuple[Any, ...], target_config: str) -> Any:
    """Trace a function, jitted or not, as `lower` does."""
    return _for_target(target_config, lambda: _trace(function, arguments))


def _for_target(target_config: str, make: Callable[[], T]) -> T:
    target = target_device(target_config)
    with answering_for(target):
        try:
            return make()
        except (RuntimeError, ValueError) as error:
            if isinstance(target, TargetTpu) and "cuDNN" in str(error):
                raise GpuOnly("cuDNN's attention") from error
            if not needs_abstract_device(error):
                raise
        with abstract_device(target):
            return make()


def target_device(config: str) -> TargetGpu | TargetTpu:
    """What JAX may ask about the device of a target configuration."""
    tpu = tpu_config(config)
    if tpu is not None:
        return TargetTpu(tpu["device_kind"], tpu["cores"])
    return TargetGpu(model_of(config), capability_of(config), cores_of(config), cudnn_of(config))


def _trace(function: Any, arguments: tuple[Any, ...]) -> Any:
    import jax

    if hasattr(function, "lower") and not hasattr(function, "trace"):
        return function  # the result of `.trace()`
    jitted = function if hasattr(function, "trace") else jax.jit(function)
    return jitted.trace(*jax.tree.map(_abstract, arguments))


def _lower(traced: Any, platform: str) -> Lowered:
    if platform == "tpu":
        _check_kernels(traced)
        # JAX itself keeps the estimates of kernels for TPUs.
        return _as_lowered(traced.lower(lowering_platforms=(platform,)))
    return _as_lowered(traced.lower(lowering_platforms=(platform,)), estimates_of(traced))


def _check_kernels(traced: Any) -> None:
    """Raise GpuOnly for Pallas kernels of Triton or Mosaic GPU, which JAX just fails to assert."""
    for equation in equations(traced.jaxpr):
        if equation.primitive.name in ("pallas_call", "core_map", "mpmd_map"):
            own = equation.params
            marks = (own.get("compiler_params"), own.get("mesh"), *own.get("meshes", ()))
            for compiler, name in (("triton", "Triton"), ("mosaic_gpu", "Mosaic GPU")):
                if any(f".{compiler}." in type(mark).__module__ for mark in marks):
                    raise GpuOnly(f"a Pallas kernel for {name}")


def _as_lowered(lowered: Any, estimates: Mapping[tuple[str, ...], str] | None = None) -> Lowered:
    devices, options = lowered_for(lowered)
    program = bytecode(lowered.compiler_ir("stablehlo"))
    return Lowered(with_estimates(program, estimates or {}), devices, options)


def _abstract(value: Any) -> Any:
    """Replace arrays by their shapes: they will be on other devices."""
    import jax

    if isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer):
        shaped: Any = jax.ShapeDtypeStruct
        return shaped(value.shape, value.dtype)
    return value


def call_builder(
    build: Any, devices: list[Any], keywords: Mapping[str, Any], target_config: str
) -> Lowered:
    """Lower what a target's function returns."""
    # Building may trace too, as `jax.eval_shape` does.
    with answering_for(target_device(target_config)):
        function, arguments = built_function(build, devices, keywords)
    return lower(function, arguments, target_config)


def built_function(
    build: Any, devices: list[Any], keywords: Mapping[str, Any] | None = None
) -> tuple[Any, tuple[Any, ...]]:
    """(function, arguments): a target's function, called with devices or a mesh as it wants."""
    names = inspect.signature(build).parameters
    given = typed_keywords(build, keywords or {})
    if "devices" in names:
        given["devices"] = devices
    elif "mesh" in names:
        given["mesh"] = _mesh(devices)
    elif unmet := [n for n, p in names.items() if p.default is p.empty and n not in given]:
        raise WrongTarget(
            f"takes {', '.join(unmet)}; expected a parameter called `devices` (a list) or `mesh` "
            "(one axis, `data`)"
        )
    return _function_and_arguments(build(**given))


def _mesh(devices: list[Any]) -> Any:
    import numpy as np
    from jax.sharding import Mesh

    return Mesh(np.array(devices), ("data",))


def _function_and_arguments(built: Any) -> tuple[Any, tuple[Any, ...]]:
    function, *arguments = built if isinstance(built, (tuple, list)) and built else (built,)
    is_lowered = hasattr(function, "compiler_ir")
    if not callable(function) and not is_lowered:
        raise WrongTarget(
            f"returned {_described(built)}; expected a jitted function and its abstract arguments: "
            "return jitted, params, batch"
        )
    # (jitted, (params, batch)) means the same, unless the function takes one tuple.
    if len(arguments) == 1 and isinstance(arguments[0], (tuple, list)):
        spread = tuple(arguments[0])
        if _binds(function, spread):
            return function, spread
    if not is_lowered and not _binds(function, tuple(arguments)):
        raise WrongTarget(
            f"returned {len(arguments)} arguments for {getattr(function, '__name__', 'a function')}"
            f"{inspect.signature(function)}; expected as many as it takes"
        )
    return function, tuple(arguments)


def _binds(function: Any, arguments: tuple[Any, ...]) -> bool:
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        return False
    except ValueError:
        return True  # without a signature, let jax report the error
    return True


def _described(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of " + (
            ", ".join(type(item).__name__ for item in value) or "nothing"
        )
    return "nothing" if value is None else f"a {type(value).__name__}"
