"""Python functions as machine code: compiled by Numba once, loaded without Numba ever after.

Importing Numba and waking its type system takes most of a second, many times what decoding a
profile takes. So the functions here work on plain pointers, Numba compiles each of them to an
object file on first use, and from then on the object file is loaded directly:

    @native("i64(u8*, i64, i64*)")          a function of C types
    def total(data, count, out): …

    total(array, len(array), result)        arrays are passed by address, and checked by type

Such functions can't allocate and can't raise; they report by what they return. Calls release the
GIL. `@inner` marks helpers that native functions call.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np

_DTYPES = {
    "u8": np.dtype(np.uint8),
    "i32": np.dtype(np.int32),
    "u32": np.dtype(np.uint32),
    "i64": np.dtype(np.int64),
    "f64": np.dtype(np.float64),
    "b1": np.dtype(np.bool_),
}
_C_TYPES: dict[str, Any] = {"i64": ctypes.c_int64, "f64": ctypes.c_double}
_NUMBA_TYPES = {"u8": "uint8", "i32": "int32", "u32": "uint32", "i64": "int64", "f64": "float64"}
_NUMBA_TYPES["b1"] = "uint8"
# Symbols that Numba's wrapper mentions for the case of an exception, which can't happen here.
_NEVER_CALLED = ("numba_gil_ensure", "numba_gil_release")


# What loops over plain memory may become.
_OF_LIBC = ("memset", "memcpy", "memmove")
_LOADING = threading.Lock()


def inner(function: Any) -> Any:
    """Marks a helper of native functions; in Python it stays what it is."""
    function.is_inner = True
    return function


def word_at(data: Any, at: int) -> Any:
    """Eight bytes as one unsigned number, the first byte lowest; all eight must be there."""
    return np.uint64(int.from_bytes(bytes(data[at : at + 8]), "little"))


def trailing_zeros(word: Any) -> Any:
    """How many low bits of a number that is not 0 are clear."""
    number = int(word)
    return np.int64((number & -number).bit_length() - 1)


def native(signature: str) -> Callable[[Any], Native]:
    """Makes a function of pointers and numbers native; see the module's text."""
    return lambda function: Native(function, signature)


class Native:
    """A native function: compiled or loaded when it is first called."""

    def __init__(self, function: FunctionType, signature: str) -> None:
        self.python = function
        self.signature = signature
        self.__doc__ = function.__doc__
        result, _, rest = signature.partition("(")
        self.result = result.strip()
        self.arguments = [a.strip() for a in rest.removesuffix(")").split(",")]
        self._call: Any = None

    def prepare(self) -> None:
        """Compile or load the function, unless that is done."""
        if self._call is None:
            with _LOADING:
                self._call = self._call or self._load()

    def __call__(self, *values: Any) -> Any:
        self.prepare()
        return self._call(*(_passed(v, a) for v, a in zip(values, self.arguments, strict=True)))

    def _load(self) -> Any:
        name = f"{self.python.__module__}.{self.python.__name__}"
        file_name = f"{name}-{self._key()}.o"
        code, symbol = _find(file_name) or _keep(file_name, *self._compile())
        kinds: list[Any] = [
            ctypes.c_void_p if a.endswith("*") else _C_TYPES[a] for a in self.arguments
        ]
        return ctypes.CFUNCTYPE(_C_TYPES[self.result], *kinds)(_engine().add(code, symbol))

    def _key(self) -> str:
        """Everything the machine code depends on: sources, compiler and processor."""
        digest = hashlib.sha256()
        modules = {self.python.__module__, *(f.__module__ for f in _helpers(self.python))}
        for module in sorted(modules):
            digest.update(Path(str(sys.modules[module].__file__)).read_bytes())
        digest.update(Path(__file__).read_bytes())
        digest.update(f"{self.signature} {_compiler()}".encode())
        return digest.hexdigest()[:16]

    def _compile(self) -> tuple[bytes, str]:
        import numba
        from numba import types

        made_helpers: dict[str, Any] = _intrinsics()
        for helper in _helpers(self.python):
            scope = {**helper.__globals__, **made_helpers}
            copy = FunctionType(helper.__code__, scope, helper.__name__)
            made_helpers[helper.__name__] = numba.njit(error_model="numpy", forceinline=True)(copy)

        def kind(name: str) -> Any:
            plain = getattr(types, _NUMBA_TYPES[name.removesuffix("*")])
            pointer: Any = types.CPointer
            return pointer(plain) if name.endswith("*") else plain

        signature = kind(self.result)(*(kind(a) for a in self.arguments))
        scope = {**self.python.__globals__, **made_helpers}
        body = FunctionType(self.python.__code__, scope, self.python.__name__)
        made: Any = numba.cfunc(signature, error_model="numpy")(body)
        return made._library._get_compiled_object(), made._wrapper_name


def prepare_all(*modules: Any) -> None:
    """Load the native functions of modules, at a time when nobody waits for them."""
    for module in modules:
        for found in vars(module).values():
            if isinstance(found, Native):
                found.prepare()


def _intrinsics() -> dict[str, Any]:
    """What Numba has no words for, as single machine instructions."""
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


def _passed(value: Any, kind: str) -> Any:
    if not kind.endswith("*"):
        return value
    wanted = _DTYPES[kind.removesuffix("*")]
    if value.dtype != wanted or not value.flags.c_contiguous:
        raise TypeError(f"expected a contiguous array of {wanted}, got {value.dtype}")
    return value.__array_interface__["data"][0]


def _helpers(function: Any) -> list[Any]:
    """Inner functions that a function can name, those that others need first."""
    found: dict[str, Any] = {}

    def visit(code_names: tuple[str, ...], scope: dict[str, Any]) -> None:
        for name in code_names:
            helper: Any = scope.get(name)
            if getattr(helper, "is_inner", False) and name not in found:
                visit(helper.__code__.co_names, helper.__globals__)
                found[name] = helper

    visit(function.__code__.co_names, function.__globals__)
    return list(found.values())


def _folders() -> list[Path]:
    """Where machine code is kept: beside the sources, else in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return [Path(__file__).parent / "__pycache__", Path(cache) / "slipstream"]


def _find(file_name: str) -> tuple[bytes, str] | None:
    for folder in _folders():
        try:
            symbol, _, code = (folder / file_name).read_bytes().partition(b"\n")
        except OSError:
            continue
        return code, symbol.decode()
    return None


def _keep(file_name: str, code: bytes, symbol: str) -> tuple[bytes, str]:
    """Write machine code to the first folder that can be written; if none can, go on without."""
    for folder in _folders():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(dir=folder)
            with os.fdopen(descriptor, "wb") as file:
                file.write(symbol.encode() + b"\n" + code)
            os.replace(temporary, folder / file_name)
        except OSError:
            continue
        break
    return code, symbol


@lru_cache(maxsize=1)
def _compiler() -> str:
    """The compiler's version (llvmlite and Numba are released in pairs) and the processor."""
    import llvmlite
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features().flatten()
    return f"{llvmlite.__version__} {llvm.get_host_cpu_name()} {features}"


class _Engine:
    """Holds loaded machine code for the life of the process."""

    def __init__(self) -> None:
        import llvmlite.binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        address = ctypes.cast(ctypes.pythonapi.PyErr_Clear, ctypes.c_void_p).value
        for name in _NEVER_CALLED:
            llvm.add_symbol(name, address)
        own = ctypes.CDLL(None)
        for name in _OF_LIBC:
            llvm.add_symbol(name, ctypes.cast(getattr(own, name), ctypes.c_void_p).value)
        self.llvm = llvm
        self.engines: list[Any] = []

    def add(self, code: bytes, symbol: str) -> int:
        machine = self.llvm.Target.from_default_triple().create_target_machine()
        engine = self.llvm.create_mcjit_compiler(self.llvm.parse_assembly(""), machine)
        engine.add_object_file(self.llvm.ObjectFileRef.from_data(code))
        engine.finalize_object()
        self.engines.append(engine)
        address: int = engine.get_function_address(symbol)
        return address


@lru_cache(maxsize=1)
def _engine() -> _Engine:
    return _Engine()
