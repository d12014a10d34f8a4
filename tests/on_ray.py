"""Fixtures of tests on a real Ray cluster of two nodes."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from race_lost import RaceLost


@pytest.fixture
def ray_environment(tmp_path):
    """Nothing is reported to anybody, and no compile is in a cache: it is there to be killed."""
    # Short, since it holds sockets.
    folder = Path(tempfile.mkdtemp(prefix="ray-"))
    own = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": str(folder), "TMPDIR": str(folder)}
    yield {**os.environ, **own, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def ray_nodes(ray_environment):
    """Its address, and the processes of its two nodes."""
    script = Path(__file__).parent / "ray_cluster.py"
    with subprocess.Popen(
        [sys.executable, script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=ray_environment,
    ) as process:
        try:
            yield json.loads(process.stdout.readline())
        finally:
            process.stdin.close()
            process.wait(300)


def busy_worker(search: subprocess.Popen, nodes: list[int]) -> tuple[int, int]:
    """A worker that has a candidate, and its node; Ray names processes by what they do."""
    while search.poll() is None:
        for process in Path("/proc").glob("[0-9]*"):
            try:
                parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
                if parent in nodes and b"Worker.evaluate" in (process / "cmdline").read_bytes():
                    return int(process.name), parent
            except (OSError, ValueError):
                continue
        time.sleep(0.02)
    raise RaceLost("the search ended before a worker had a candidate")
