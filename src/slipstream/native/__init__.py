"""Python functions as machine code: compiled once by Numba, then loaded without Numba.

Importing Numba and initialising its type system takes most of a second, many times longer than
decoding a profile. So native functions work on plain pointers, Numba compiles each on first use,
and the machine code is kept as an image that later processes only map (`code_cache`, `image`):

    @native("i64(u8*, i64, i64*)")          a function of C types
    def total(data, count, out): …

    total(array, len(array), result)        arrays are passed by address, and checked by type

Such functions can't allocate and can't raise; they report through what they return. Calls release
the GIL. `@inner` marks helpers that native functions call. Both may use `np` even if their module
does not import numpy, so that the module can be imported before numpy is.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from types import FunctionType
from typing import Any

from slipstream.native.code_cache import cache_key, cached_image, keep_image
from slipstream.native.image import Image

_DTYPES = {"u8": "|u1", "i32": "<i4", "u32": "<u4", "i64": "<i8", "f64": "<f8", "b1": "|b1"}
_C_TYPES: dict[str, Any] = {"i64": ctypes.c_int64, "f64": ctypes.c_double}
_LOADING = threading.Lock()


def inner(function: Any) -> Any:
    """Marks a helper of native functions; in Python it is left unchanged."""
    function.is_inner = True
    return function


def word_at(data: Any, at: int) -> Any:
    """Eight bytes as a little-endian unsigned number; all eight must exist."""
    import numpy as np

    return np.uint64(int.from_bytes(bytes(data[at : at + 8]), "little"))


def trailing_zeros(word: Any) -> Any:
    """The number of trailing zero bits of a number that is not 0."""
    import numpy as np

    number = int(word)
    return np.int64((number & -number).bit_length() - 1)


def native(signature: str) -> Callable[[Any], Native]:
    """Makes a function of pointers and numbers native; see the module's docstring."""
    return lambda function: Native(function, signature)


class Native:
    """A native function, compiled or loaded on its first call."""

    def __init__(self, function: FunctionType, signature: str) -> None:
        self.python = function
        self.signature = signature
        self.__doc__ = function.__doc__
        result, _, rest = signature.partition("(")
        self.result = result.strip()
        self.arguments = [a.strip() for a in rest.removesuffix(")").split(",")]
        self._call: Any = None

    def prepare(self) -> None:
        """Compile or load the function, unless that has been done."""
        if self._call is None:
            with _LOADING:
                self._call = self._call or self._load()

    def __call__(self, *values: Any) -> Any:
        self.prepare()
        return self._call(*(_passed(v, a) for v, a in zip(values, self.arguments, strict=True)))

    def _load(self) -> Any:
        helpers = _helpers(self.python)
        name = f"{self.python.__module__}.{self.python.__name__}"
        key = cache_key(self.signature, (self.python, *helpers))
        image = cached_image(name, key) if key is not None else None
        if image is None:
            image = self._compile(helpers)
            if key is not None:
                keep_image(name, key, image)
        kinds: list[Any] = [
            ctypes.c_void_p if a.endswith("*") else _C_TYPES[a] for a in self.arguments
        ]
        return ctypes.CFUNCTYPE(_C_TYPES[self.result], *kinds)(image.load())

    def _compile(self, helpers: list[Any]) -> Image:
        from slipstream.native.numba_compiler import compiled

        return compiled(self.python, self.result, self.arguments, helpers)


def prepare_all(*modules: Any) -> None:
    """Load the native functions of modules before they are needed."""
    for module in modules:
        for found in vars(module).values():
            if isinstance(found, Native):
                found.prepare()


def _passed(value: Any, kind: str) -> Any:
    """A number as it is, or the address of a numpy or ctypes array."""
    if not kind.endswith("*"):
        # ctypes would cut off what is beyond 64 bits.
        if kind == "i64" and not -(1 << 63) <= value < 1 << 63:
            raise OverflowError(f"{value} has more than 64 bits")
        return value
    if isinstance(value, ctypes.Array):
        return ctypes.addressof(value)
    wanted = _DTYPES[kind.removesuffix("*")]
    if value.dtype.str != wanted or not value.flags.c_contiguous:
        raise TypeError(f"expected a contiguous array of {wanted}, got {value.dtype.str}")
    return value.__array_interface__["data"][0]


def _helpers(function: Any) -> list[Any]:
    """The inner functions that a function uses, each after those that it uses itself."""
    found: dict[str, Any] = {}

    def visit(code_names: tuple[str, ...], scope: dict[str, Any]) -> None:
        for name in code_names:
            helper: Any = scope.get(name)
            if getattr(helper, "is_inner", False) and name not in found:
                visit(helper.__code__.co_names, helper.__globals__)
                found[name] = helper

    visit(function.__code__.co_names, function.__globals__)
    return list(found.values())
