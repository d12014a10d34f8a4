"""Machine code as images: the same function however it is loaded."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys

import numpy as np
import pytest

from slipstream.native import native
from slipstream.native.image import Image
from slipstream.native.linker import linked
from slipstream.native.numba_compiler import compiled
from slipstream.native.warmup import native_functions


def weighed(data, count, out):  # type: ignore[no-untyped-def]
    """A loop with constants, a table of jumps and memory set to nothing."""
    total = np.int64(0)
    for i in range(8):
        out[i] = 0
    for i in range(count):
        kind = data[i] % 7
        if kind == 0:
            out[0] += 3
        elif kind == 1:
            out[1] += data[i]
        elif kind == 2:
            out[2] ^= data[i]
        elif kind == 3:
            out[3] = data[i] * 0.37
        elif kind == 4:
            out[4] -= 1
        elif kind == 5:
            out[5] |= 1 << (data[i] & 31)
        total += kind
    return total


def made() -> Image:
    return compiled(weighed, "i64", ["i64*", "i64", "i64*"], [])


def called(image: Image, data: np.ndarray) -> tuple[int, list[int]]:
    pointer = ctypes.c_void_p
    function = ctypes.CFUNCTYPE(ctypes.c_int64, pointer, ctypes.c_int64, pointer)(image.load())
    out = np.full(8, -1, np.int64)
    return function(data.ctypes.data, len(data), out.ctypes.data), out.tolist()


def test_an_image_does_what_python_does() -> None:
    data = np.random.default_rng(0).integers(0, 10**6, 1000)
    out = np.full(8, -1, np.int64)
    assert called(made(), data) == (weighed(data, len(data), out), out.tolist())


def test_an_image_is_the_same_from_a_file_and_as_an_object(monkeypatch) -> None:
    image = made()
    data = np.arange(100)
    assert Image.from_bytes(image.to_bytes()) == image
    objects: list[Image] = []
    monkeypatch.setattr(
        "slipstream.native.numba_compiler.linked",
        lambda code, entry: objects.append(Image(code, 0, (), ((entry, 0, 0),), True)) or image,
    )
    made()
    assert called(objects[0], data) == called(image, data)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="images are made on x86-64")
def test_every_native_function_is_an_image_here() -> None:
    assert not made().is_object
    for function in native_functions():
        function.prepare()
    code = (
        "import sys\n"
        "from slipstream.native.warmup import native_functions\n"
        "for function in native_functions(): function.prepare()\n"
        "assert not {'numba', 'llvmlite'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_other_machine_code_stays_an_object() -> None:
    for code in (b"", b"\x7fELF\x01\x01" + bytes(60), b"\xcf\xfa\xed\xfe" + bytes(60)):
        assert linked(code, "f") == Image(code, 0, (), (("f", 0, 0),), is_object=True)


def test_arrays_of_another_kind_are_refused() -> None:
    @native("i64(i64*)")
    def first(data):  # type: ignore[no-untyped-def]
        return data[0]

    assert first(np.array([7])) == 7
    assert first((ctypes.c_int64 * 1)(8)) == 8
    for wrong in (np.array([7.0]), np.arange(10)[::2], np.array([7], np.int32)):
        with pytest.raises(TypeError, match="expected a contiguous array of <i8"):
            first(wrong)


@pytest.mark.parametrize("count", [2**63, -(2**63) - 1, 2**64 + 1])
def test_numbers_of_more_than_64_bits_are_refused(count: int) -> None:
    """What ctypes would cut off is a size or an offset that native code relies on."""
    function = native("i64(i64*, i64, i64*)")(weighed)
    with pytest.raises(OverflowError, match="more than 64 bits"):
        function(np.zeros(4, np.int64), count, np.zeros(8, np.int64))
