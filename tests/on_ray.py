"""Fixtures of tests on a real Ray cluster of two nodes."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from race_lost import RaceLost

STARTS = 5
TOO_SLOW = "timed out during startup"
"""what Ray says of a node that took too long"""


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
    process, answer = started_cluster(ray_environment)
    with process:
        try:
            yield json.loads(answer)
        finally:
            process.stdin.close()
            process.wait(300)


def started_cluster(environment: dict[str, str]) -> tuple[subprocess.Popen, str]:
    """The process of a cluster that runs, and what it says.

    Ray gives a node 30 seconds to start, which can't be set and which a busy machine exceeds.
    """
    script = Path(__file__).parent / "ray_cluster.py"
    for _ in range(STARTS):
        process = subprocess.Popen(
            [sys.executable, script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        answer = process.stdout.readline()
        if answer:
            # What it says later would fill the pipe.
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return process, answer
        _, said = process.communicate()
        if TOO_SLOW not in said:
            break
    raise RuntimeError(f"Ray's cluster did not start: {said}")


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
