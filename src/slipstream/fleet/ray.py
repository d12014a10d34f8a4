"""Recordings on a Ray cluster: each is a task, on whichever node has a CPU free.

Nodes need the same Slipstream, and the recordings under the same path or URL.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from slipstream.errors import Missing
from slipstream.fleet.digest import Digest
from slipstream.fleet.pool import Worker, WorkerLost
from slipstream.fleet.task import Refused, Task
from slipstream.tune.ray.connection import Connection

POLL_S = 0.5


class RayCluster:
    """Makes workers that are tasks on a cluster."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._task = connection.ray.remote(num_cpus=1, max_retries=0)(_remote_digest())

    def size(self, jobs: int | None) -> int:
        """How many recordings are read at once: one for each CPU, or fewer."""
        cpus = max(1, self._connection.cpus())
        return min(cpus, jobs or cpus)

    def worker(self) -> Worker:
        return RayWorker(self._connection.ray, self._task)


@contextmanager
def ray_cluster(address: str) -> Iterator[RayCluster]:
    """Connected inside the block."""
    connection = Connection(address)
    connection.open()
    try:
        yield RayCluster(connection)
    finally:
        connection.close()


class RayWorker:
    """One task at a time."""

    def __init__(self, ray: Any, task: Any) -> None:
        self._ray, self._task = ray, task
        self._is_closed = False

    def digest(self, task: Task) -> Digest | Refused:
        answer = self._task.remote(_version(), task)
        while not self._ray.wait([answer], timeout=POLL_S)[0]:
            if self._is_closed:
                self._ray.cancel(answer, force=True)
                raise WorkerLost("the fleet was closed")
        try:
            found = self._ray.get(answer)
        except self._ray.exceptions.RayError as error:
            raise WorkerLost(" ".join(str(error).split())[:200]) from None
        if isinstance(found, str):
            raise Missing(found)
        # As bytes, which are copied: arrays would stay in Ray's object store.
        found = pickle.loads(found)
        assert isinstance(found, Digest | Refused)
        return found

    def stop(self) -> None:
        self._is_closed = True

    def close(self) -> None:
        """Nothing is left of it."""


def _version() -> str:
    try:
        return version("slipstream")
    except PackageNotFoundError:
        return "without a version"


def _remote_digest() -> Any:
    """The task; local, so that Ray sends it by value, and a node without Slipstream can run it."""

    def remote_digest(wanted: str, task: Any) -> Any:
        import pickle
        import socket
        import sys
        from importlib.metadata import PackageNotFoundError, version

        try:
            found = version("slipstream")
        except PackageNotFoundError:
            found = "without a version"
        if found != wanted:
            return (
                f"the Ray node {socket.gethostname()} has Slipstream {found}, not {wanted}; "
                f"install it there: {sys.executable} -m pip install slipstream=={wanted}"
            )
        from slipstream.fleet.task import digest_of

        return pickle.dumps(digest_of(task))

    return remote_digest
