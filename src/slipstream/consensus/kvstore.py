"""Stores through which the processes of a job exchange messages: a key is written only once.

Agreement rests on this: the first to write a decision has decided, and all others read it.
"""

from __future__ import annotations

import errno
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import quote, unquote

from slipstream.jaxhooks.jax_types import first_line
from slipstream.jaxhooks.shutdown import SHUTDOWN

Found = TypeVar("Found")

_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
"""what file systems without hard links answer: buckets mounted as folders, say"""


def poll(look: Callable[[], Found | None], wait_s: float, every_s: float = 0.02) -> Found | None:
    """What `look` finds, asked again and again; None once time is up, or this process ends."""
    end = time.monotonic() + wait_s
    while (found := look()) is None:
        left = end - time.monotonic()
        if left <= 0 or SHUTDOWN.is_set():
            return None
        time.sleep(min(every_s, left))
    return found


class StoreUnavailable(Exception):
    """The store did not answer, so it is unknown whether the message was written."""


class KeyValueStore(Protocol):
    """What all processes of a job can write to and read from."""

    def put(self, key: str, value: bytes) -> bool:
        """Write a key; False if it is already there."""

    def get(self, key: str, wait_s: float = 0.0) -> bytes | None:
        """The value of a key; None if it does not appear in time."""

    def with_prefix(self, prefix: str) -> dict[str, bytes]:
        """All values under a prefix so far, by the rest of their keys."""


class JaxStore:
    """The key-value store of JAX's coordination service, which every JAX job on GPUs has."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def put(self, key: str, value: bytes) -> bool:
        try:
            self.client.key_value_set_bytes(key, value)
        except Exception as error:
            if _status(error) == "ALREADY_EXISTS":
                return False
            raise StoreUnavailable(first_line(error)) from error
        return True

    def get(self, key: str, wait_s: float = 0.0) -> bytes | None:
        end = time.monotonic() + wait_s
        while (left := end - time.monotonic()) > 0 and not SHUTDOWN.is_set():
            # In slices, because Ctrl-C can't interrupt a wait inside the client.
            slice_ms = int(min(left, 1.0) * 1000) + 1
            found = self._found(self.client.blocking_key_value_get_bytes, key, slice_ms)
            if found is not None:
                return found
        # Without a deadline: one of a millisecond misses keys that are there, if the service is
        # busy or far away.
        return self._found(self.client.key_value_try_get_bytes, key)

    @staticmethod
    def _found(get: Callable[..., bytes], *arguments: str | int) -> bytes | None:
        try:
            return bytes(get(*arguments))
        except Exception as error:
            if _status(error) not in ("DEADLINE_EXCEEDED", "NOT_FOUND"):
                raise StoreUnavailable(first_line(error)) from error
            return None

    def with_prefix(self, prefix: str) -> dict[str, bytes]:
        try:
            found = self.client.key_value_dir_get_bytes(prefix)
        except Exception as error:
            if _status(error) == "NOT_FOUND":
                return {}
            raise StoreUnavailable(first_line(error)) from error
        return {key.removeprefix(prefix).lstrip("/"): bytes(value) for key, value in found}


class FolderStore:
    """A folder that all processes see: each value is a file, which appears complete."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, key: str, value: bytes) -> bool:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(prefix=".", dir=self.folder)
        except OSError as error:
            raise StoreUnavailable(f"{self.folder}: {error.strerror or error}") from error
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(value)
                file.flush()
                os.fsync(file.fileno())
            self._publish(name, key)
        except FileExistsError:
            return False
        except OSError as error:
            raise StoreUnavailable(f"{self.folder}: {error.strerror or error}") from error
        finally:
            with suppress(FileNotFoundError):
                os.unlink(name)
        return True

    def _publish(self, name: str, key: str) -> None:
        """FileExistsError where the key is taken."""
        target = self._file(key)
        try:
            os.link(name, target)  # unlike a rename, it fails where the name is taken
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            # Without links, whoever creates this file may rename its own into place.
            os.close(os.open(target.with_name(f".{target.name}"), os.O_CREAT | os.O_EXCL))
            os.rename(name, target)

    def get(self, key: str, wait_s: float = 0.0) -> bytes | None:
        return poll(lambda: self._read(key), wait_s)

    def _read(self, key: str) -> bytes | None:
        try:
            return self._file(key).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreUnavailable(f"{self.folder}: {error.strerror or error}") from error

    def with_prefix(self, prefix: str) -> dict[str, bytes]:
        start = f"{prefix}/"
        try:
            names = [unquote(name) for name in os.listdir(self.folder) if name[0] != "."]
            wanted = [name for name in names if name.startswith(start)]
            return {n.removeprefix(start): self._file(n).read_bytes() for n in wanted}
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StoreUnavailable(f"{self.folder}: {error.strerror or error}") from error

    def _file(self, key: str) -> Path:
        return self.folder / quote(key, safe="")


def _status(error: Exception) -> str:
    """The status of an error of JAX's client: `ALREADY_EXISTS`, say."""
    # Errors that aren't JaxRuntimeError have no code; their text may still begin with one.
    return str(getattr(error, "error_code_string", None) or str(error).partition(":")[0])
