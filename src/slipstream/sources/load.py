"""`load`: any recording, whoever made it, into one Profile."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from slipstream.errors import BadInput
from slipstream.profile.profile import Profile
from slipstream.sources.files import XPLANE_SUFFIXES, find_recordings, open_bytes

Progress = Callable[[int, int], None]


def load(
    path: str | os.PathLike[str], run: str | None = None, progress: Progress | None = None
) -> Profile:
    """The Profile of a file, of a run folder (one file a host), or of a log folder's newest run.

    `run` picks another run of a log folder by name. `progress` is called with bytes read and
    bytes in all.
    """
    files = find_recordings(Path(path), run)
    total = sum(file.stat().st_size for file in files)
    with ThreadPoolExecutor(1) as reader:
        reading = reader.submit(_read_all, files, total, progress)
        # Native code reads the file and leaves this thread free to load the rest of us.
        from slipstream.profile.attribution import attribute
        from slipstream.profile.complaints import complain
        from slipstream.profile.merging import merge

        profiles = reading.result()
    if progress is not None:
        progress(total, total)
    return complain(attribute(merge(profiles)))


def _read_all(files: list[Path], total: int, progress: Progress | None) -> list[Profile]:
    done = 0
    profiles = []
    for file in files:
        size = file.stat().st_size
        profiles.append(_read(file, _reporter(progress, done, size, total)))
        done += size
    return profiles


def _read(file: Path, report: Callable[[int], None] | None) -> Profile:
    if not file.name.endswith(XPLANE_SUFFIXES) and file.suffix not in (".pb", ".gz", ""):
        raise BadInput(
            f"{file} is not a profile that Slipstream reads (by its name); expected "
            "*.xplane.pb as jax.profiler writes it, or the folder above it"
        )
    from slipstream.sources.recording import read_recording
    from slipstream.sources.xplane import read_space

    return read_recording(read_space(file, open_bytes(file)), report)


def _reporter(
    progress: Progress | None, done: int, size: int, total: int
) -> Callable[[int], None] | None:
    if progress is None:
        return None
    return lambda offset: progress(done + min(offset, size), total)
