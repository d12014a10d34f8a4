"""Cached machine code: whatever happens to its file, the function gives the right result."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from slipstream.native import Native, code_cache
from slipstream.native.code_cache import cache_key, cached_image, keep_image
from slipstream.native.image import Image
from slipstream.native.warmup import native_functions

FACTOR = 3


def weighted(data, count, out):  # type: ignore[no-untyped-def]
    """Needs memory set to zero (a symbol), a table of constants and a global."""
    for i in range(8):
        out[i] = 0
    total = np.int64(0)
    for i in range(count):
        out[data[i] & 7] += data[i] * FACTOR
        total += data[i]
    return total


SIGNATURE = "i64(i64*, i64, i64*)"
KEY = bytes(range(32))


@pytest.fixture(scope="module")
def image() -> Image:
    made: Image = Native(weighted, SIGNATURE)._compile([])  # type: ignore[arg-type]
    return made


class Cache:
    """A cache folder with the image of `weighted`, and a count of compilations."""

    def __init__(self, folder: Path, image: Image, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.compiled = folder, 0
        place = code_cache._Folder(str(folder), (os.geteuid(),), 0o700)
        monkeypatch.setattr(code_cache, "_folders", lambda: [place])

        def compile_again(function: Native, helpers: list[object]) -> Image:
            self.compiled += 1
            return image

        monkeypatch.setattr(Native, "_compile", compile_again)
        self.check(compiles=True)
        (self.path,) = folder.iterdir()
        self.intact = self.path.read_bytes()

    def check(self, compiles: bool) -> None:
        """A new process's first call: the right result, from the cache or compiled anew."""
        before = self.compiled
        data, out, expected = np.arange(100), np.full(8, -1), np.zeros(8, np.int64)
        found = Native(weighted, SIGNATURE)(data, len(data), out)  # type: ignore[arg-type]
        np.add.at(expected, data & 7, data * FACTOR)
        assert (found, out.tolist()) == (data.sum(), expected.tolist())
        assert self.compiled - before == compiles

    def damage(self, data: bytes) -> None:
        """Put other bytes in the file: the function is compiled, and the file whole again."""
        self.path.write_bytes(data)
        self.check(compiles=True)
        assert self.path.read_bytes() == self.intact


@pytest.fixture
def cache(tmp_path: Path, image: Image, monkeypatch: pytest.MonkeyPatch) -> Cache:
    return Cache(tmp_path / "cache", image, monkeypatch)


def test_an_image_is_loaded_from_the_cache(cache: Cache) -> None:
    cache.check(compiles=False)
    assert cache.path.name.startswith(f"{__name__}.weighted-")
    assert cache.folder.stat().st_mode & 0o777 == 0o700
    assert cache.path.stat().st_mode & 0o777 == 0o644


def test_no_flipped_bit_goes_unnoticed(cache: Cache) -> None:
    """One bit of every byte of the headers and relocations, and of a sample of the code."""
    code = len(cache.intact) - len(cached_image_of(cache).code)
    draw = random.Random(0)
    places = [*range(code), *draw.sample(range(code, len(cache.intact)), 100)]
    assert code > 100
    for place in places:
        flipped = bytearray(cache.intact)
        flipped[place] ^= 1 << draw.randrange(8)
        cache.damage(bytes(flipped))


def cached_image_of(cache: Cache) -> Image:
    function = Native(weighted, SIGNATURE)  # type: ignore[arg-type]
    key = cache_key(SIGNATURE, (weighted,))
    assert key is not None
    found = cached_image(f"{function.python.__module__}.weighted", key)
    assert found is not None
    return found


def test_a_file_cut_short_or_overwritten_is_refused(cache: Cache) -> None:
    size = len(cache.intact)
    for length in (*range(0, 200, 3), *range(200, size, size // 40), size - 1):
        cache.damage(cache.intact[:length])
    cache.damage(bytes(size))
    cache.damage(cache.intact[:100] + bytes(size - 100))
    cache.damage(cache.intact + b"\0")
    cache.damage(cache.intact + cache.intact)


def test_the_image_of_another_key_is_refused(cache: Cache, image: Image) -> None:
    name = "tests.native.test_code_cache.other"
    keep_image(name, KEY, image)
    (other,) = cache.folder.glob(f"{name}*")
    cache.damage(other.read_bytes())


def test_a_checksum_over_nonsense_is_no_image(cache: Cache) -> None:
    for content in (b"", b"x" * 31, b"x" * 40, b"\xff" * 80, b"\0" * 7):
        data = KEY + content
        whole = code_cache._MAGIC + code_cache._digest(data) + data
        assert code_cache._verified(whole, KEY) is None


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666, 0o777])
def test_a_file_that_others_can_write_is_refused(cache: Cache, mode: int) -> None:
    cache.path.chmod(mode)
    cache.check(compiles=True)
    assert cache.path.stat().st_mode & 0o777 == 0o644
    cache.check(compiles=False)


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o775, 0o1777])
def test_a_folder_that_others_can_write_is_not_used(cache: Cache, mode: int) -> None:
    cache.folder.chmod(mode)
    cache.check(compiles=True)
    cache.path.unlink()
    cache.check(compiles=True)
    assert not list(cache.folder.iterdir())


@pytest.mark.parametrize("which", ["cache", "file"])
def test_what_belongs_to_another_user_is_refused(cache: Cache, monkeypatch, which: str) -> None:
    real = os.fstat

    def status(descriptor: int) -> os.stat_result:
        found = real(descriptor)
        is_folder = (found.st_mode & 0o170000) == 0o040000
        if is_folder != (which == "cache"):
            return found
        return os.stat_result((*found[:4], found.st_uid + 1, *found[5:10]))

    monkeypatch.setattr(os, "fstat", status)
    cache.check(compiles=True)
    cache.check(compiles=True)


def test_roots_files_are_trusted_in_the_package_only(monkeypatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    package, user = code_cache._folders()
    assert (package.owners, user.owners) == ((1234, 0), (1234,))
    assert package.path == str(Path(code_cache.__file__).parent / "__pycache__")
    found = os.stat_result((0o100644, 1, 1, 1, 0, 0, 10, 0, 0, 0))
    code_cache._check_owner(found, package.owners)
    with pytest.raises(PermissionError):
        code_cache._check_owner(found, user.owners)


def test_a_link_or_a_pipe_is_no_image(cache: Cache, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    cache.path.rename(elsewhere)
    cache.path.symlink_to(elsewhere)
    cache.check(compiles=True)
    assert not cache.path.is_symlink()
    assert elsewhere.read_bytes() == cache.path.read_bytes() == cache.intact
    cache.path.unlink()
    os.mkfifo(cache.path, 0o600)
    cache.check(compiles=True)
    assert cache.path.read_bytes() == cache.intact
    cache.path.unlink()
    cache.path.mkdir()
    cache.check(compiles=True)
    assert not [path for path in cache.folder.iterdir() if path.is_file()]


def test_where_nothing_can_be_written_nothing_is_kept(cache: Cache, monkeypatch) -> None:
    places = [
        code_cache._Folder(str(cache.path / "folder"), (os.geteuid(),), 0o700),
        code_cache._Folder(str(cache.folder / "new"), (os.geteuid(),), 0o700),
    ]
    monkeypatch.setattr(code_cache, "_folders", lambda: places[:1])
    cache.check(compiles=True)
    cache.check(compiles=True)
    monkeypatch.setattr(code_cache, "_folders", lambda: places)
    cache.check(compiles=True)
    cache.check(compiles=False)


def test_nothing_is_loaded_from_the_working_folder(cache: Cache, tmp_path, monkeypatch) -> None:
    """A relative XDG_CACHE_HOME is ignored, and so is a home that nobody knows."""
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    package = str(Path(code_cache.__file__).parent / "__pycache__")

    def paths() -> list[str]:
        return [folder.path for folder in code_cache._folders()]

    monkeypatch.setenv("HOME", "/home/somebody")
    for relative in ("", "cache", "./cache", "../cache", "~/cache"):
        monkeypatch.setenv("XDG_CACHE_HOME", relative)
        assert paths() == [package, "/home/somebody/.cache/slipstream/native"]
    monkeypatch.setenv("HOME", "relative")
    assert paths() == [package]
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", lambda user: {}[user])
    assert paths() == [package]
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert paths() == [package, "/somewhere/slipstream/native"]


def key_of_weighted() -> bytes | None:
    code_cache._environment.cache_clear()
    try:
        return cache_key(SIGNATURE, (weighted,))
    finally:
        code_cache._environment.cache_clear()


def test_the_key_is_the_same_while_nothing_changes(monkeypatch) -> None:
    key = key_of_weighted()
    monkeypatch.setenv("NUMBA_NUM_THREADS", "3")
    assert key is not None
    assert key_of_weighted() == key == cache_key(SIGNATURE, (weighted,))
    assert cache_key("i64(i64*, i64, f64*)", (weighted,)) != key


@pytest.mark.parametrize("package", ["numba", "llvmlite"])
def test_another_version_has_another_key(package: str, monkeypatch) -> None:
    key, real = key_of_weighted(), code_cache._version
    monkeypatch.setattr(code_cache, "_version", lambda name: real(name) + b"1" * (name == package))
    assert key_of_weighted() not in (key, None)


@pytest.mark.parametrize("module", ["linker", "numba_compiler", "image", "__init__", "test"])
def test_another_source_has_another_key(module: str, monkeypatch) -> None:
    key, real = key_of_weighted(), code_cache._bytes_of
    own = Path(code_cache.__file__).with_name(f"{module}.py")
    changed = __file__ if module == "test" else str(own)
    monkeypatch.setattr(code_cache, "_bytes_of", lambda name: real(name) + b"#" * (name == changed))
    assert key_of_weighted() not in (key, None)


@pytest.mark.parametrize("change", ["constant", "model", "features", "setting", "python"])
def test_another_constant_or_machine_has_another_key(change: str, monkeypatch) -> None:
    key, processor = key_of_weighted(), code_cache._processor()
    if change == "constant":
        monkeypatch.setitem(globals(), "FACTOR", 5)
    elif change == "setting":
        monkeypatch.setenv("NUMBA_OPT", "0")
    elif change == "python":
        monkeypatch.setattr(sys.implementation, "cache_tag", "cpython-399")
    else:
        other = f"model: 1\n{processor}" if change == "model" else f"{processor} avx1024"
        monkeypatch.setattr(code_cache, "_processor", lambda: other)
    assert key_of_weighted() not in (key, None)


def test_versions_come_from_the_installed_packages() -> None:
    import llvmlite
    import numba

    assert numba.__version__.encode() in code_cache._version("numba")
    assert llvmlite.__version__.encode() in code_cache._version("llvmlite")


def test_the_processor_is_named_with_its_features() -> None:
    assert "flags" in code_cache._processor() or "Features" in code_cache._processor()
    assert len(code_cache._processor()) > 100


def test_without_a_readable_source_nothing_is_cached(cache: Cache, monkeypatch) -> None:
    monkeypatch.setattr(weighted, "__module__", "no.such.module")
    assert cache_key(SIGNATURE, (weighted,)) is None
    cache.check(compiles=True)
    cache.check(compiles=True)


MODULE = """
from slipstream.native import inner, native

@inner
def square(value):
    return value * value

@native("i64(i64*, i64)")
def squares(data, count):
    total = 0
    for i in range(count):
        total += square(data[i])
    return total
"""
JOB = """
import os, sys, time
import numpy as np
from slipstream.native import code_cache
folder, go, blocked = sys.argv[1:]
code_cache._folders = lambda: [code_cache._Folder(folder, (os.geteuid(),), 0o700)]
if blocked == "yes":
    sys.modules["numba"] = None
else:
    import numba
open(f"{go}.{os.getpid()}", "w").close()
while not os.path.exists(go):
    time.sleep(0.01)
from squaring import squares
print(squares(np.arange(10), 10))
"""


def test_processes_that_compile_at_once_all_get_it_right(tmp_path: Path) -> None:
    (tmp_path / "squaring.py").write_text(MODULE)
    folder, go = tmp_path / "cache", tmp_path / "go"

    def start(blocked: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", JOB, str(folder), str(go), blocked]
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)

    jobs = [start("no") for _ in range(3)]
    while len(list(tmp_path.glob("go.*"))) < len(jobs):
        assert all(job.poll() is None for job in jobs)
        time.sleep(0.02)
    go.touch()
    assert [job.communicate()[0] for job in jobs] == ["285\n"] * 3
    assert [path.suffix for path in folder.iterdir()] == [".image"]
    job = start("yes")
    assert (job.communicate()[0], job.returncode) == ("285\n", 0)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="Linux lists mappings")
def test_no_memory_is_writable_and_executable_at_once() -> None:
    for function in native_functions():
        function.prepare()
    code = (
        "from slipstream.native.warmup import native_functions\n"
        "for function in native_functions(): function.prepare()\n"
        "print([line for line in open('/proc/self/maps') if 'wx' in line.split()[1]])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"
