"""The connection to a Ray cluster: fails fast, with the reason."""

from __future__ import annotations

import io
import logging
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from typing import Any, TextIO

from slipstream.errors import BadInput, Missing, missing_extra

REACH_S = 5.0
"""timeout for the port to answer"""
HEALTH_S = 60.0
"""timeout for the cluster's health check, on a busy machine"""
COUNT_S = 2.0
"""how long the cluster's size is cached"""
_FORMS = "expected auto, HOST:PORT or ray://HOST:PORT"


def import_ray() -> Any:
    try:
        import ray
    except ModuleNotFoundError:
        raise missing_extra("ray", "ray", "tuning on a Ray cluster") from None
    return ray


@contextmanager
def connected(address: str | None) -> Iterator[None]:
    """Connected inside the block, if there is an address."""
    if address is None:
        yield
        return
    connection = Connection(address)
    connection.open()
    try:
        yield
    finally:
        connection.close()


class Connection:
    """This process as a driver of the cluster."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.ray = import_ray()
        self._undo = ExitStack()
        self._counted: tuple[float, int] = (0.0, 0)

    def open(self) -> None:
        if self.ray.is_initialized():
            # The process is already connected to a cluster: use that one.
            return
        _check_reachable(self._address)
        try:
            with warnings.catch_warnings():
                # Warnings are repeated in the error below, or irrelevant here.
                warnings.simplefilter("ignore")
                self.ray.init(
                    address=self._address, log_to_driver=False, logging_level=logging.ERROR
                )
        except ImportError as error:
            raise Missing(
                f"the address {self._address} needs Ray's client ({_line(error)}); install it "
                "with: pip install 'slipstream[ray]'"
            ) from None
        except (ConnectionError, OSError) as error:
            raise _unreachable(self._address, _line(error)) from None
        except (RuntimeError, ValueError, AssertionError) as error:
            # A version mismatch of Ray or Python, or an invalid address.
            raise BadInput(
                f"the Ray cluster at {self._address} can't be used ({_line(error)}); {_FORMS}"
            ) from None
        self._undo.callback(self._shut_down)
        self._undo.enter_context(redirect_stdout(_WithoutRay(sys.stdout)))

    def cpus(self) -> int:
        """The CPUs of all live nodes."""
        now = time.monotonic()
        when, found = self._counted
        if not when or now > when + COUNT_S:
            found = int(self.ray.cluster_resources().get("CPU", 0))
            self._counted = (now, found)
        return found

    def _shut_down(self) -> None:
        # Ray prints buffered messages here.
        with redirect_stdout(io.StringIO()):
            self.ray.shutdown()

    def close(self) -> None:
        """Disconnect, unless the process was already connected before `open`."""
        self._undo.close()


class _WithoutRay(io.TextIOBase):
    """Standard output without the messages of Ray's threads about nodes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        is_ray = threading.current_thread().name.startswith("ray_")
        return len(text) if is_ray else self._stream.write(text)

    def flush(self) -> None:
        self._stream.flush()


def _check_reachable(address: str) -> None:
    """Check first: Ray itself tries for minutes, and then ends the process."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if address != "auto":
        if not colon or not host or not port.isdigit():
            raise BadInput(f"{address!r} is not the address of a Ray cluster; {_FORMS}")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_S).close()
        except (OSError, OverflowError) as error:
            raise _unreachable(address, _line(error)) from None
    if not address.startswith("ray://"):
        _check_health(address)


def _check_health(address: str) -> None:
    """The port answers; let Ray's own command check that it is a cluster."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=HEALTH_S)
    except subprocess.TimeoutExpired:
        raise _unreachable(address, f"no answer in {HEALTH_S:.0f} s") from None
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise _unreachable(address, _line(lines[-1] if lines else "its health check failed"))


def _unreachable(address: str, reason: str) -> Missing:
    return Missing(
        f"no Ray cluster at {address} ({reason}); start one with: ray start --head; {_FORMS}"
    )


def _line(error: object) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else f"{text[:199]}…"
