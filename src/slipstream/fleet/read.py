"""`read_fleet`: the hosts of a run, read one by one instead of all into one Profile."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from slipstream.fleet.fleet import Fleet, FleetBuilder
from slipstream.fleet.pool import Pool, ProcessWorker
from slipstream.fleet.task import Task
from slipstream.remote.paths import any_path
from slipstream.sources.files import find_recordings, not_read

FLEET_BYTES = 1 << 30
"""recordings of several hosts that are larger together are read as a fleet"""
GZIP_FACTOR = 8
"""what recordings unpack to, about"""

Progress = Callable[[int, int], None]
Notice = Callable[[str], None]


def is_fleet(path: str, run: str | None = None) -> bool:
    """Whether a path holds recordings of several hosts that are better not in memory at once."""
    if not any_path(path).is_dir():
        return False
    files = find_recordings(any_path(path), run)
    return len(files) > 1 and sum(map(_unpacked_bytes, files)) >= FLEET_BYTES


def _unpacked_bytes(file: Path) -> int:
    size = file.stat().st_size
    return size * GZIP_FACTOR if file.name.endswith(".gz") else size


def read_fleet(
    path: str | os.PathLike[str],
    run: str | None = None,
    *,
    jobs: int | None = None,
    ray: str | None = None,
    dumps: str | None = None,
    costs: bool = False,
    progress: Progress | None = None,
    notice: Notice = lambda text: None,
) -> Fleet:
    """Read the hosts of a run one by one, in `jobs` processes or on the Ray cluster at `ray`.

    A recording that can't be read is left out, and named in the fleet's warnings. `costs` says
    whether the fleet's costs will be asked for. `progress` is called with the bytes read and the
    total, `notice` with a sentence when a worker dies.
    """
    found = any_path(path)
    files = find_recordings(found, run)
    sizes = [_size(file) for file in files]
    left = not_read(found, files) if run is None else ""
    builder = FleetBuilder([left] if left else [])
    tasks = [Task(str(file), dumps, costs) for file in files]
    done = 0
    with _pool(ray, jobs, len(tasks), notice) as pool:
        for place, digest in pool.digests(tasks):
            builder.add(place, digest)
            done += sizes[place]
            if progress is not None:
                progress(done, sum(sizes))
    return builder.build()


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        # Its worker says what is wrong with it.
        return 0


@contextmanager
def _pool(ray: str | None, jobs: int | None, tasks: int, notice: Notice) -> Iterator[Pool]:
    if ray is None:
        size = min(tasks, jobs or os.cpu_count() or 1)
        with Pool(ProcessWorker, size, notice) as pool:
            yield pool
        return
    from slipstream.fleet.ray import ray_cluster

    with (
        ray_cluster(ray) as cluster,
        Pool(cluster.worker, min(tasks, cluster.size(jobs)), notice) as pool,
    ):
        yield pool
