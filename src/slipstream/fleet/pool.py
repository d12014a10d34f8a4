"""Recordings handed to workers: processes on this machine, or tasks on a Ray cluster.

    files ─ thread ─┐              ┌─ worker ─ load ─ digest
          ─ thread ─┼─ one file ───┤
          ─ thread ─┘  at a time   └─ worker ─ load ─ digest

Only as many recordings are in memory as there are workers. If a worker dies, another one reads its
recording; one that ends `TRIES` workers is left out, by name.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, Queue
from typing import IO, Any, Protocol

from slipstream.fleet.digest import Digest
from slipstream.fleet.fleet import Unread
from slipstream.fleet.task import Refused, Task, receive, send

TRIES = 2
"""workers that may die on one recording"""


class WorkerLost(Exception):
    """A worker died; the text says how."""


class Worker(Protocol):
    """Reads one recording at a time."""

    def digest(self, task: Task) -> Digest | Refused:
        """WorkerLost if it died."""

    def stop(self) -> None:
        """End what another thread is waiting for."""

    def close(self) -> None: ...


class ProcessWorker:
    """A process on this machine, started again after it died."""

    command = (sys.executable, "-P", "-m", "slipstream.fleet.worker")

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115, as long as the worker
        self._lock = threading.Lock()
        self._is_closed = False

    def digest(self, task: Task) -> Digest | Refused:
        with self._lock:
            if self._is_closed:
                raise WorkerLost("it was closed")
            process = self._process = self._process or self._start()
        assert process.stdin is not None and process.stdout is not None
        try:
            send(process.stdin, task)
            found = receive(process.stdout)
        except (EOFError, OSError):
            self._process = None
            how = self._how(process)
            _close(process)
            raise WorkerLost(how) from None
        assert isinstance(found, Digest | Refused)
        return found

    def _start(self) -> subprocess.Popen[bytes]:
        # Workers share the cores, so each needs one thread only for what numpy does.
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        return subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment,
        )

    def _how(self, process: subprocess.Popen[bytes]) -> str:
        code = process.wait()
        if code < 0:
            from signal import Signals

            memory = ", maybe for want of memory" if code == -9 else ""
            return f"its process was ended by {Signals(-code).name}{memory}"
        self._log.seek(0)
        lines = self._log.read().decode("utf-8", "replace").strip().splitlines()
        return f"its process ended with {code}{': ' + lines[-1] if lines else ''}"

    def stop(self) -> None:
        with self._lock:
            self._is_closed = True
            if self._process is not None:
                self._process.kill()

    def close(self) -> None:
        if self._process is not None:
            _close(self._process)
        self._log.close()


def _close(process: subprocess.Popen[bytes]) -> None:
    process.wait()
    for stream in (process.stdin, process.stdout):
        with suppress(OSError):  # what was not sent can't be
            if stream is not None:
                stream.close()


class Pool:
    """Threads that hand recordings to their workers."""

    def __init__(
        self,
        worker: Callable[[], Worker],
        size: int,
        notice: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._workers = [worker() for _ in range(size)]
        self._notice = notice
        self._is_closed = threading.Event()
        self._threads: list[threading.Thread] = []

    def digests(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Digest | Unread]]:
        """(place of the task, its digest), in the order in which they are done."""
        left = iter(enumerate(tasks))
        lock = threading.Lock()
        # Digests wait here until those before them are merged; then their workers wait, too.
        done: Queue[tuple[int, Digest | Unread] | BaseException] = Queue(len(self._workers))

        def work(worker: Worker) -> None:
            try:
                while not self._is_closed.is_set():
                    with lock:
                        place, task = next(left, (-1, None))
                    if task is None:
                        return
                    found = self._read(worker, task)
                    if self._is_closed.is_set():
                        return
                    done.put((place, found))
            except BaseException as error:
                # Raised in the thread that merges.
                done.put(error)

        for worker in self._workers:
            thread = threading.Thread(target=work, args=(worker,), daemon=True)
            self._threads.append(thread)
            thread.start()
        try:
            for _ in tasks:
                found = done.get()
                if isinstance(found, BaseException):
                    raise found
                yield found
        finally:
            self._stop(done)

    def _stop(self, done: Queue[Any]) -> None:
        """End all threads, whatever they wait for."""
        self._is_closed.set()
        for worker in self._workers:
            worker.stop()
        for thread in self._threads:
            while thread.is_alive():
                with suppress(Empty):
                    done.get_nowait()
                thread.join(0.01)

    def _read(self, worker: Worker, task: Task) -> Digest | Unread:
        name = Path(task.source).name
        how = ""
        for tried in range(TRIES if not self._is_closed.is_set() else 0):
            try:
                found = worker.digest(task)
            except WorkerLost as error:
                how = str(error)
                if tried + 1 < TRIES and not self._is_closed.is_set():
                    self._notice(f"lost a worker ({how}); another one reads {name}")
                continue
            return Unread(task.source, found.reason) if isinstance(found, Refused) else found
        return Unread(task.source, f"{name}: {TRIES} workers were lost on it ({how})")

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.close()
