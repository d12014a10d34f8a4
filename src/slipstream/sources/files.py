"""Finds and opens recordings: one file, a run folder, or the log folder above it."""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import BinaryIO

import numpy as np

from slipstream.did_you_mean import did_you_mean
from slipstream.errors import BadInput
from slipstream.profile.events import Array
from slipstream.reading import (
    GZIP,
    damage,
    open_input,
    open_ranges,
    unpack,
    unpacked_pieces,
    unreadable,
)
from slipstream.remote.paths import RemotePath, local_copy
from slipstream.sources.mapped_file import map_file

XPLANE_SUFFIXES = (".xplane.pb", ".xplane.pb.gz")
# Recordings that a folder may have of one run, the most informative first.
_SUFFIXES = (XPLANE_SUFFIXES, (".zip",), (".sqlite", ".sqlite.gz"), (".nsys-rep",))
_ALL_SUFFIXES = tuple(sorted((end for ends in _SUFFIXES for end in ends), key=len, reverse=True))
_PROCESS = re.compile(r"process\d+")
"""the folder of one process, as `slipstream.capture` writes it"""
_ZIP, _SQLITE = b"PK\x03\x04", b"SQLite format 3\x00"
_EXPECTED = "a recording (*.xplane.pb, .sqlite, .nsys-rep or .zip) or a folder of them"


class FileKind(Enum):
    """What a file contains."""

    XPLANE = "a recording of JAX's profiler"
    EXPORT = "an Nsight Systems export"
    REPORT = "an Nsight Systems report"
    ARCHIVE = "an nsys-jax archive"
    PROGRAM = "a program"
    OTHER = "something else"


def find_recordings(path: Path, run: str | None = None) -> list[Path]:
    """The files of one run, one for each host: of the named run, or of the newest."""
    try:
        return _find_recordings(path, run)
    except (OSError, ValueError) as error:
        # A folder that may not be searched, a name that is too long or has a NUL.
        raise unreadable(path, error, _EXPECTED) from None


def _find_recordings(path: Path, run: str | None) -> list[Path]:
    if not path.exists():
        raise BadInput(f"{path} does not exist{_nearby(path)}")
    if not path.is_dir():
        return [path]
    runs = _runs(path)
    if not runs:
        raise BadInput(
            f"{path} contains no profile: expected *.xplane.pb in it or in plugins/profile/<time>/ "
            "below it, or Nsight Systems' *.sqlite, *.nsys-rep or *.zip; record one with "
            "jax.profiler.start_trace(folder)"
        )
    chosen = _newest(runs) if run is None else [folder for folder in runs if folder.name == run]
    if not chosen:
        names = ", ".join(sorted({folder.name for folder in runs})[-5:])
        raise BadInput(f"{path} has no run {run!r}; its runs are: {names}")
    return [file for folder in chosen for file in _recordings(folder)]


def _newest(runs: Sequence[Path]) -> list[Path]:
    """The folder of the newest run; where each process has its own folders, one of each."""
    newest: dict[str, Path] = {}
    for folder in runs:
        process = next((part for part in folder.parts if _PROCESS.fullmatch(part)), "")
        newest[process] = max(newest.get(process, folder), folder, key=lambda one: one.name)
    last = max(newest, key=lambda process: newest[process].name)
    return [newest[last]] if not last else [newest[one] for one in sorted(newest) if one]


def not_read(path: Path, files: Sequence[Path]) -> str:
    """What else a folder holds, in a sentence; empty if `files` are all of its recordings."""
    if not files or not path.is_dir():
        return ""
    folders = sorted({file.parent for file in files})
    runs = {folder.name for folder in _runs(path) if folder not in folders}
    if runs:
        names = ", ".join(sorted(runs, reverse=True)[:3]) + (", …" if len(runs) > 3 else "")
        others = f"{len(runs)} more runs" if len(runs) > 1 else "one more run"
        read = ", ".join(sorted({folder.name for folder in folders}))
        return f"{path} holds {others}; {read} was read. To read another one: --run NAME ({names})"
    stems = {_stem(file) for file in files}
    left = [
        file.name
        for folder in folders
        for file in sorted(folder.iterdir())
        if file.is_file() and file.name.endswith(_ALL_SUFFIXES) and _stem(file) not in stems
    ]
    if not left:
        return ""
    names = ", ".join(left[:3]) + (f" and {len(left) - 3} more" if len(left) > 3 else "")
    return f"{path} also holds {names}, not read; to read a file, name it"


def _stem(file: Path) -> str:
    """A name without its suffix: a report, its export and its archive are one recording."""
    return next(file.name.removesuffix(end) for end in _ALL_SUFFIXES if file.name.endswith(end))


def file_kind(path: Path) -> FileKind:
    """What a file contains: by its name if only one profiler uses it, else by its first bytes."""
    with open_ranges(path, _EXPECTED) as file:
        head = file.read(64)
        if head.startswith(GZIP):
            head = _unpacked_head(file)
    name = path.name.removesuffix(".gz")
    if name.endswith(".xplane.pb"):
        return FileKind.XPLANE
    if head.startswith(_SQLITE):
        return FileKind.EXPORT
    if head.startswith(_ZIP):
        return FileKind.ARCHIVE
    if name.endswith((".nsys-rep", ".qdrep")):
        return FileKind.REPORT
    if _is_program(head, name):
        return FileKind.PROGRAM
    return FileKind.XPLANE if path.suffix in (".pb", ".gz", "") else FileKind.OTHER


def _is_program(head: bytes, name: str) -> bool:
    if head.lstrip().startswith(b"HloModule") or name.endswith((".hlo", ".hlo.pb", ".hlo.txt")):
        return True
    # Both start with a message: an HloProto's starts with a text, an XSpace's does not.
    at = 1
    while at < len(head) and head[at] & 0x80:
        at += 1
    return head[:1] == b"\x0a" and head[at + 1 : at + 2] == b"\x0a"


def _unpacked_head(file: BinaryIO) -> bytes:
    with suppress(BadInput):
        return next(unpacked_pieces(file, file.name, at_once=64), b"")
    return b""


@contextmanager
def decompressed(path: Path) -> Iterator[Path]:
    """A file that SQLite can open: itself, or a temporary copy if it is gzipped."""
    import tempfile

    with open_input(path, _EXPECTED) as file:
        if file.read(2) != GZIP:
            yield local_copy(path)
            return
        with tempfile.TemporaryDirectory(prefix="slipstream-") as folder:
            made = Path(folder) / "export.sqlite"
            with made.open("wb") as whole:
                for piece in unpacked_pieces(file, path):
                    whole.write(piece)
            yield made


def open_bytes(path: Path, mapped: mmap.mmap | None = None) -> Array:
    """A file's bytes as an array: memory-mapped (by the caller, maybe), decompressed if gzipped."""
    with open_input(path, _EXPECTED) as file:
        magic = file.read(2)
        if magic == GZIP:
            return np.frombuffer(unpack(file, path), np.uint8)
        if not magic:
            raise BadInput(f"{path} is empty; was the profiler stopped? record it again")
        try:
            mapped = mapped or map_file(file.fileno(), path)
        except (OSError, ValueError) as error:
            raise unreadable(path, error, _EXPECTED) from None
    found = np.frombuffer(mapped, np.uint8)
    found.flags.writeable = False
    return found


def release(data: Array, start: int, end: int) -> None:
    """Tell the system that bytes of a mapped file are no longer needed, to free their memory."""
    mapped = getattr(data.base, "obj", None)
    if not isinstance(mapped, mmap.mmap) or not hasattr(mmap, "MADV_DONTNEED"):
        return
    first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    length = (end - first) // mmap.PAGESIZE * mmap.PAGESIZE
    if length > 0:
        mapped.madvise(mmap.MADV_DONTNEED, first, length)


def _runs(path: Path) -> list[Path]:
    if _recordings(path):
        return [path]
    # TensorBoard's layout, at any depth: <log>/**/plugins/profile/<time>/
    for layout in ("**/plugins/profile/*", "profile/*"):
        folders = [f for f in path.glob(layout) if f.is_dir() and _recordings(f)]
        if folders:
            return folders
    return [folder for folder in sorted(path.iterdir()) if folder.is_dir() and _recordings(folder)]


def _recordings(folder: Path) -> list[Path]:
    files = sorted(path for path in folder.iterdir() if path.is_file())
    for suffixes in _SUFFIXES:
        found = [path for path in files if path.name.endswith(suffixes)]
        # Other zip files may lie there too.
        found = [path for path in found if path.suffix != ".zip" or is_archive(path)]
        if found:
            return found
    return []


def is_archive(path: Path) -> bool:
    """Whether nsys-jax wrote a zip file."""
    import zipfile

    is_zip = damage(path, "a zip file", (zipfile.BadZipFile,))
    with (
        suppress(BadInput),
        is_zip,
        open_ranges(path, "a zip file") as file,
        zipfile.ZipFile(file) as archive,
    ):
        return any("nvtx_gpu_proj_trace/" in name for name in archive.namelist())
    return False


def _nearby(path: Path) -> str:
    if isinstance(path, RemotePath) and len(path.parts) < 3:
        return "; check the name of the bucket"
    if not path.parent.is_dir():
        return f" (nor does its folder {path.parent})"
    guess = did_you_mean(path.name, (p.name for p in path.parent.iterdir()), most=3, cutoff=0.6)
    return f"; {guess}".rstrip("; ")
