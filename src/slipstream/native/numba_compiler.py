"""Compiles a Python function to an image, with Numba."""

from __future__ import annotations

from types import FunctionType
from typing import Any

from slipstream.native.image import Image
from slipstream.native.linker import linked

_TYPES = {"u8": "uint8", "i32": "int32", "u32": "uint32", "i64": "int64", "f64": "float64"}
_TYPES["b1"] = "uint8"


def compiled(function: Any, result: str, arguments: list[str], helpers: list[Any]) -> Image:
    """The function's machine code; `helpers` are what it calls, each after those it uses itself."""
    import numba
    import numpy as np
    from numba import types

    made_helpers: dict[str, Any] = {"np": np, **_intrinsics()}
    for helper in helpers:
        copy = FunctionType(
            helper.__code__, {**helper.__globals__, **made_helpers}, helper.__name__
        )
        made_helpers[helper.__name__] = numba.njit(error_model="numpy", forceinline=True)(copy)

    def kind(name: str) -> Any:
        plain = getattr(types, _TYPES[name.removesuffix("*")])
        pointer: Any = types.CPointer
        return pointer(plain) if name.endswith("*") else plain

    signature = kind(result)(*(kind(a) for a in arguments))
    scope = {**function.__globals__, **made_helpers}
    body = FunctionType(function.__code__, scope, function.__name__)
    made: Any = numba.cfunc(signature, error_model="numpy")(body)
    return linked(made._library._get_compiled_object(), made._wrapper_name)


def _intrinsics() -> dict[str, Any]:
    """Operations that Numba lacks, as single machine instructions."""
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

    def word_at(context: Any, data: Any, at: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            place = builder.bitcast(
                builder.gep(values[0], [values[1]]), ir.IntType(64).as_pointer()
            )
            return builder.load(place, align=1)

        return types.uint64(data, types.int64), generate

    def trailing_zeros(context: Any, word: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            return builder.cttz(values[0], ir.Constant(ir.IntType(1), 1))

        return types.int64(types.uint64), generate

    return {made.__name__: intrinsic(made) for made in (word_at, trailing_zeros)}
