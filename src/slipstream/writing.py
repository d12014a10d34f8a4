"""Atomic file writes: a file is either complete or not there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from slipstream.errors import BadInput


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path next to `path`: replaces it at the end, or is removed if the block fails."""
    target = Path(path)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise _cannot_write(target, error) from None
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        os.chmod(temporary, 0o666 & ~_umask())  # mkstemp makes files private
        os.replace(temporary, target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise _cannot_write(target, error) from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _cannot_write(target: Path, error: OSError) -> BadInput:
    return BadInput(f"can't write {target}: {error.strerror or error}; choose another place")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
