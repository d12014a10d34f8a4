"""Where the processes of a job leave words for each other: each key is written once, for good.

That a key can't be written twice is what makes agreement possible: whoever writes a decision first
has decided, and everybody else reads it.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, unquote


class StoreUnavailable(Exception):
    """The store did not answer: whether a word was written or not is unknown."""


class KeyValueStore(Protocol):
    def put(self, key: str, value: bytes) -> bool:
        """Write once; False where the key was written before."""

    def get(self, key: str, wait_s: float = 0.0) -> bytes | None:
        """The value, waited for; None where there is none in time."""

    def with_prefix(self, prefix: str) -> dict[str, bytes]:
        """Everything written under a prefix by now, by the rest of the key."""


class JaxStore:
    """The key-value store of JAX's coordination service, which every JAX job on GPUs has."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def put(self, key: str, value: bytes) -> bool:
        try:
            self.client.key_value_set_bytes(key, value)
        except Exception as error:
            if "ALREADY_EXISTS" in str(error):
                return False
            raise StoreUnavailable(_first_line(error)) from error
        return True

    def get(self, key: str, wait_s: float = 0.0) -> bytes | None:
        end = time.monotonic() + wait_s
        while True:
            # In slices: a wait inside the client can't be interrupted by Ctrl-C.
            left = min(max(end - time.monotonic(), 0.0), 1.0)
            try:
                return bytes(self.client.blocking_key_value_get_bytes(key, int(left * 1000) + 1))
            except Exception as error:
                if "DEADLINE_EXCEEDED" not in str(error) and "NOT_FOUND" not in str(error):
                    raise StoreUnavailable(_first_line(error)) from error
            if time.monotonic() >= end:
                return None

    def with_prefix(self, prefix: str) -> dict[str, bytes]:
        try:
            found = self.client.key_value_dir_get_bytes(prefix)
        except Exception as error:
            if "NOT_FOUND" in str(error):
                return {}
            raise StoreUnavailable(_first_line(error)) from error
        return {key.removeprefix(prefix).lstrip("/"): bytes(value) for key, value in found}


class FolderStore:
    """A folder that all processes see: a value is a file, linked into place whole."""

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
            # A link, unlike a rename, fails where the name is taken.
            os.link(name, self._file(key))
        except FileExistsError:
            return False
        except OSError as error:
            raise StoreUnavailable(f"{self.folder}: {error.strerror or error}") from error
        finally:
            os.unlink(name)
        return True

    def get(self, key: str, wait_s: float = 0.0) -> bytes | None:
        end = time.monotonic() + wait_s
        while True:
            try:
                return self._file(key).read_bytes()
            except FileNotFoundError:
                pass
            except OSError as error:
                raise StoreUnavailable(f"{self.folder}: {error.strerror or error}") from error
            if time.monotonic() >= end:
                return None
            time.sleep(min(0.02, wait_s))

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


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]
