"""Custom calls: functions of libraries. XLA compiles a call if its name is registered."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator, Sequence
from typing import Any

from slipstream.jaxhooks import compiling, custom_partitioning
from slipstream.jaxhooks.custom_partitioning import ANSWERED, ASKING

OF_XLA = re.compile(
    r"^(Sharding|(Custom)?SPMD\w+|Slipstream\..*|xla\..*|__\w+\$.*|annotate_device_placement|MoveTo\w+|TopK|"
    r"LayoutConstraint|AllocateBuffer|SliceToDynamic|PadToStatic|ApproxTopK|tpu_custom_call|"
    r"InspectSharding|Layout|Pin|Unpin|CreateBuffer|X64\w*|ProducesRaggedShardings|mhlo\..*|"
    r"shape_assertion|stablehlo\..*|chlo\..*|_?[Xx]la\w*Attribute\w*)$"
)
"""calls that XLA itself handles"""
_OF_JAX = ("xla_ffi_", "mosaic_gpu")
"""calls whose functions come with jaxlib"""
_OF_GPU = ("__cu", "__gpu")
"""calls that XLA handles only for GPUs"""
_CUDNN_ATTENTION = tuple(
    f"__cudnn$fmha{bias}Softmax{dropout}{direction}"
    for bias in ("", "ScaleBias")
    for dropout in ("", "Dropout")
    for direction in ("", "Backward")
) + ("__cudnn$fmhaSoftmaxF8", "__cudnn$fmhaSoftmaxBackwardF8")
"""calls that appear only once XLA partitions a program"""
_STATUS_RETURNING = 2
"""the simplest custom-call API version: the function is not used at compile time"""
CUDA, CPU = "CUDA", "cpu"
_NAME = "call_target_name"


def with_stubs(stablehlo: bytes) -> tuple[bytes, tuple[str, ...]]:
    """A program whose calls of other libraries need only a name, and these names."""
    with compiling.parsed(stablehlo) as (module, ir):
        names = [name for name, _ in _calls(module, ir) if not OF_XLA.match(name)]
    unknown = tuple(dict.fromkeys(name for name in names if not name.startswith(_OF_JAX)))
    return plain_calls(stablehlo, set(unknown)), unknown


def compilable_for_cpu(stablehlo: bytes) -> bytes:
    """A program for a GPU that the CPU's compiler takes; it must not be run."""
    with compiling.parsed(stablehlo) as (module, ir):
        names = {name for name, _ in _calls(module, ir)}
        if ASKING in names:
            custom_partitioning.record()
            for name, operation in _calls(module, ir):
                if name == ASKING:
                    operation.attributes[_NAME] = ir.StringAttr.get(ANSWERED)
            stablehlo = compiling.bytecode(module)
    unknown = {name for name in names if not OF_XLA.match(name) or name.startswith(_OF_GPU)}
    register_stubs((*unknown, *_CUDNN_ATTENTION), CPU)
    return plain_calls(stablehlo, unknown)


def compilable_elsewhere(stablehlo: bytes) -> bytes:
    """A program that was compiled for this process's CPU, without addresses in this process."""
    if ASKING.encode() not in stablehlo:
        return stablehlo
    with compiling.parsed(stablehlo) as (module, ir):
        for name, operation in _calls(module, ir):
            asked = operation.attributes["backend_config"] if name == ASKING else None
            answer = custom_partitioning.answer_to(asked.value) if asked is not None else None
            if answer is not None:
                operation.attributes[_NAME] = ir.StringAttr.get(ANSWERED)
                operation.attributes["backend_config"] = ir.StringAttr.get(answer)
        return compiling.bytecode(module)


def plain_calls(stablehlo: bytes, names: set[str]) -> bytes:
    """Give unknown calls the simplest API version; their attributes stay, as text, for models."""
    with compiling.parsed(stablehlo) as (module, ir):
        for name, operation in _calls(module, ir):
            _drop_tilings(operation.attributes)
            if name in names:
                _make_plain(operation.attributes, ir)
        return compiling.bytecode(module)


def register_stubs(names: Sequence[str], platform: str = CUDA) -> None:
    """Register names that XLA can call; they are never run."""
    for name in names:
        if (name, platform) not in _REGISTERED:
            _REGISTERED.add((name, platform))
            capsule = _capsule(ctypes.cast(_STUB, ctypes.c_void_p).value or 0)
            compiling.register_custom_call(name, capsule, platform)


def _calls(module: Any, ir: Any) -> Iterator[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []

    def visit(op: Any) -> Any:
        inner = op.operation
        if inner.name == "stablehlo.custom_call":
            found.append((ir.StringAttr(inner.attributes[_NAME]).value, inner))
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return iter(found)


def _drop_tilings(attributes: Any) -> None:
    """JAX 0.12 states them for every imported call, and its own GPU plugin is too old for them;
    GPUs have none."""
    for key in ("operand_tilings", "result_tilings"):
        if key in attributes:
            del attributes[key]


def _make_plain(attributes: Any, ir: Any) -> None:
    kind = ir.IntegerType.get_signless(32)
    attributes["api_version"] = ir.IntegerAttr.get(kind, _STATUS_RETURNING)
    for key in ("mhlo.backend_config", "backend_config"):
        if key in attributes and not isinstance(attributes[key], ir.StringAttr):
            text = str(attributes[key])
            del attributes[key]
            attributes["backend_config"] = ir.StringAttr.get(text)


_REGISTERED: set[tuple[str, str]] = set()
"""names and platforms, in this process: XLA complains of a second registration"""
_STUB = ctypes.CFUNCTYPE(None)(lambda: None)


def _capsule(address: int) -> Any:
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return new(address, b"xla._CUSTOM_CALL_TARGET", None)
