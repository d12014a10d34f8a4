"""`load`: recordings of any profiler into one Profile."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from slipstream.errors import BadInput
from slipstream.profile.profile import Profile, ProfileWarning
from slipstream.remote.paths import RemotePath, any_path
from slipstream.sources.files import (
    FileKind,
    decompressed,
    file_kind,
    find_recordings,
    not_read,
    open_bytes,
)
from slipstream.sources.mapped_file import file_stamp, latest, raise_if_changed
from slipstream.sources.prefetch import take_prefetched

if TYPE_CHECKING:
    from slipstream.sources.hlo.dumps import Dumps
    from slipstream.sources.prefetch import FileWalk

Progress = Callable[[int, int], None]
_LARGE = 32 << 20
"""bytes from which on reading takes a noticeable time"""
AnyPath = str | os.PathLike[str]


def load(
    path: AnyPath | Sequence[AnyPath],
    run: str | None = None,
    progress: Progress | None = None,
    dumps: AnyPath | None = None,
) -> Profile:
    """Read a file, a run folder (one file for each host), or the newest run of a log folder.

    Each may be in a bucket: `gs://…`, `s3://…` (docs/clouds.md).

    Reads what JAX's profiler writes (`.xplane.pb`), Nsight Systems' `.sqlite` exports and
    `.nsys-rep` reports, and nsys-jax archives (`.zip`). Several paths are hosts or processes of one
    run. `run` selects another run of a log folder by name. `progress` is called with the bytes read
    and the total. `dumps` is a folder of programs dumped by XLA, for recordings without programs;
    dumps next to the recording are found without it.
    """
    reading = take_prefetched(path) if run is None and dumps is None else None
    reading = reading or Reading(path, run, dumps)
    reading.progress = progress
    # Native code reads the file, which leaves this thread free to import the rest.
    from slipstream.profile.attribution.attribution import attribute
    from slipstream.profile.data_quality import add_data_quality_warnings
    from slipstream.profile.host_merge import merge_hosts

    reading.meanwhile()
    profiles = reading.result()
    if progress is not None:
        progress(reading.total, reading.total)
    left = [ProfileWarning("not-read", text) for text in reading.not_read]
    return add_data_quality_warnings(attribute(merge_hosts(profiles)).with_warnings(*left))


class Reading:
    """Files that a thread is reading."""

    def __init__(
        self,
        path: AnyPath | Sequence[AnyPath],
        run: str | None = None,
        dumps: AnyPath | None = None,
        walk: FileWalk | None = None,
    ) -> None:
        self.progress: Progress | None = None
        self.total = 0
        self.folder = any_path(dumps) if dumps is not None else None
        self.walk = walk
        self.profiles: list[Profile] = []
        self.not_read: list[str] = []
        """what else the folders hold, in sentences"""
        self.error: BaseException | None = None
        self.is_native = threading.Event()
        """set once native code does most of the work"""
        self.thread = threading.Thread(target=self._read, args=(path, run), daemon=True)
        self.thread.start()

    def meanwhile(self) -> None:
        """Load native code that is needed after reading, if reading takes long enough."""
        if self.total > _LARGE:
            from slipstream.native import prepare_all
            from slipstream.profile import grouping
            from slipstream.profile.attribution import executions

            prepare_all(executions, grouping)

    def result(self) -> list[Profile]:
        self.thread.join()
        if self.error is not None:
            raise self.error
        return self.profiles

    def _read(self, path: AnyPath | Sequence[AnyPath], run: str | None) -> None:
        try:
            files, self.not_read = _find(path, run)
            self.total = sum(file.stat().st_size for file in files)
            done = 0
            for file in files:
                size = file.stat().st_size
                report = self._reporter(done, size)
                self.profiles += _read_unchanged(file, report, self.folder, self.walk)
                done += size
        except BaseException as error:
            # `result` raises it.
            self.error = error
        finally:
            self.is_native.set()

    def _reporter(self, done: int, size: int) -> Callable[[int], None]:
        def report(offset: int) -> None:
            self.is_native.set()
            if self.progress is not None:
                self.progress(done + min(offset, size), self.total)

        return report


def _find(path: AnyPath | Sequence[AnyPath], run: str | None) -> tuple[list[Path], list[str]]:
    """(files to read, what else their folders hold)."""
    paths = [path] if isinstance(path, str | os.PathLike) else list(path)
    if not paths:
        raise BadInput(
            "no path given; expected a recording, a folder of recordings, or several of these"
        )
    files: list[Path] = []
    left = []
    for one in map(any_path, paths):
        found = find_recordings(one, run)
        files += found
        left.append("" if run is not None else not_read(one, found))
    return files, [text for text in left if text]


def _read_unchanged(
    file: Path, report: Callable[[int], None], dumps: Path | None, walk: FileWalk | None
) -> list[Profile]:
    """Read a file; if it was written to meanwhile, that is the error."""
    if isinstance(file, RemotePath):
        # One version of it is read, by ranges or from a copy, whatever is written meanwhile.
        return _read(file, report, dumps, walk)
    before = file_stamp(file)
    since = walk.mapped.number - 1 if walk else latest()
    try:
        return _read(file, report, dumps, walk)
    finally:
        raise_if_changed(file, before, since)


def _read(
    file: Path, report: Callable[[int], None], dumps: Path | None, walk: FileWalk | None
) -> list[Profile]:
    kind = file_kind(file)
    if kind is FileKind.XPLANE:
        from slipstream.sources.xplane.reader import read_xspace

        space = read_xspace(file, open_bytes(file, walk.mapped if walk else None), walk)
        from slipstream.sources.xplane.to_profile import to_profile

        return [to_profile(space, report)]
    if kind is FileKind.ARCHIVE:
        from slipstream.sources.nsys.archive import read_archive

        return read_archive(file, _dumps(file, dumps) if dumps else None)
    if kind in (FileKind.EXPORT, FileKind.REPORT):
        return [_read_nsys(file, kind, _dumps(file, dumps))]
    if kind is FileKind.PROGRAM:
        raise BadInput(
            f"{file} is a program (HLO), not a profile; slipstream.read_program reads it. To "
            "attribute an Nsight Systems export to instructions, keep the program in its folder"
        )
    raise BadInput(
        f"{file} is not a profile that Slipstream can read; expected *.xplane.pb as jax.profiler "
        "writes it or the folder above it, an Nsight Systems export (.sqlite) or report "
        "(.nsys-rep), or an nsys-jax archive (.zip)"
    )


def _read_nsys(file: Path, kind: FileKind, dumps: Dumps) -> Profile:
    from slipstream.sources.nsys.reader import exported, read_export

    beside = file.with_suffix(".sqlite")
    is_newer = beside.exists() and beside.stat().st_mtime >= file.stat().st_mtime
    if kind is FileKind.REPORT and is_newer:
        return read_export(beside, dumps, file)
    with exported(file) if kind is FileKind.REPORT else decompressed(file) as made:
        return read_export(made, dumps, file)


def _dumps(file: Path, folder: Path | None) -> Dumps:
    from slipstream.sources.hlo.dumps import dumps_beside, dumps_in

    return dumps_in(folder) if folder is not None else dumps_beside(file)
