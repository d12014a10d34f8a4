"""Finding recordings and opening them: one file, a run folder, or the log folder above it."""

from __future__ import annotations

import gzip
import mmap
import zlib
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

import numpy as np

from slipstream.errors import BadInput
from slipstream.profile.events import Array

XPLANE_SUFFIXES = (".xplane.pb", ".xplane.pb.gz")


def find_recordings(path: Path, run: str | None = None) -> list[Path]:
    """The files of one run, one a host: the run named, or the newest there is."""
    if not path.exists():
        raise BadInput(f"{path} does not exist{_nearby(path)}")
    if path.is_file():
        return [path]
    runs = _runs(path)
    if not runs:
        raise BadInput(
            f"{path} holds no profile: expected *.xplane.pb in it, or in plugins/profile/<time>/ "
            "below it; record one with jax.profiler.start_trace(folder)"
        )
    if run is None:
        return _recordings(max(runs, key=lambda folder: folder.name))
    for folder in runs:
        if folder.name == run:
            return _recordings(folder)
    names = ", ".join(sorted(folder.name for folder in runs)[-5:])
    raise BadInput(f"{path} has no run {run!r}; its runs are: {names}")


def list_runs(path: Path) -> list[str]:
    """Names of the runs below a log folder, oldest first."""
    return sorted(folder.name for folder in _runs(path))


def open_bytes(path: Path) -> Array:
    """A file's bytes as an array: memory-mapped, or unpacked where it is gzipped."""
    with path.open("rb") as file:
        magic = file.read(2)
        if magic == b"\x1f\x8b":
            return _unpack(path)
        if not magic:
            raise BadInput(f"{path} is empty; was the profiler stopped? record it again")
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return np.frombuffer(mapped, np.uint8)


def _unpack(path: Path) -> Array:
    try:
        with gzip.open(path) as file:
            return np.frombuffer(file.read(), np.uint8)
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(
            f"{path} is not a whole gzip file ({error}); copy it again from where it was recorded"
        ) from None


def _runs(path: Path) -> list[Path]:
    if _recordings(path):
        return [path]
    # TensorBoard's layout, at any depth people put it: <log>/**/plugins/profile/<time>/
    for layout in ("**/plugins/profile/*", "profile/*"):
        folders = [f for f in path.glob(layout) if f.is_dir() and _recordings(f)]
        if folders:
            return folders
    return [folder for folder in sorted(path.iterdir()) if folder.is_dir() and _recordings(folder)]


def _recordings(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.name.endswith(XPLANE_SUFFIXES) and p.is_file())


def _nearby(path: Path) -> str:
    if not path.parent.is_dir():
        return f" (nor does its folder {path.parent})"
    names: Iterable[str] = (p.name for p in path.parent.iterdir())
    close = get_close_matches(path.name, list(names), 3)
    return f"; in that folder there is: {', '.join(close)}" if close else ""
