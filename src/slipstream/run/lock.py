"""A lock file, with flock where the file system has it and with an owner link where it hasn't."""

from __future__ import annotations

import atexit
import errno
import fcntl
import os
import socket
import uuid
from contextlib import suppress
from pathlib import Path
from typing import IO

_HELD = (errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES)
"""flock's errors if another process has the lock; with any other, it can't lock here"""


class Lock:
    """A lock file that one process holds until it ends, however it ends.

    Some file systems have no flock (Lustre without its mount option, some NFS). There the lock is
    a symbolic link next to the file, which is created with its content in one step: host, process
    and start time of the owner. A link whose owner is gone from this host counts as free; whether
    a process on another host still lives can't be seen from here, so its link counts as held.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.note = ""
        """how the lock is held, if not with flock"""
        self._file: IO[str] | None = None
        self._owner = path.with_name(f"{path.name}.owner")
        self._mine: str | None = None

    def take(self) -> bool:
        """Take the lock without waiting; whether it is ours now."""
        file = open(self.path, "a+")  # noqa: SIM115
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.close()
            return error.errno not in _HELD and self._take_link(error.strerror or str(error))
        self._file = file
        try:
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}")
            file.flush()
        except OSError:
            # The text is for people; on a full disk the lock works without it.
            pass
        return True

    def is_free(self) -> bool:
        taken = self.take()
        self.release()
        return taken

    def holder(self) -> str:
        """Who holds the lock, for people."""
        if (link := self._read_link()) is not None:
            return f"{link}; if that process has ended, remove {self._owner}"
        try:
            return self.path.read_text().strip() or "by another process"
        except OSError:
            return "by another process"

    def release(self) -> None:
        """Release the lock; in a forked child, the parent keeps it."""
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._mine is not None and self._mine == _identity() == self._read_link():
            self._owner.unlink(missing_ok=True)
        self._mine = None
        atexit.unregister(self.release)

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    # Without flock.

    def _take_link(self, why: str) -> bool:
        """Create the owner link; False if another process that may be alive has created it."""
        self.note = f"{self.path.parent} can't be locked ({why}): {self._owner.name} marks its user"
        self._remove_stale()
        try:
            os.symlink(_identity(), self._owner)
        except FileExistsError:
            return False
        except OSError as error:
            self.note = (
                f"{self.path.parent} can't be locked ({why}), nor hold links ({error.strerror}): "
                "make sure that no other run uses it"
            )
            return True
        self._mine = _identity()
        atexit.register(self.release)  # on another host nobody could tell that we ended
        return True

    def _read_link(self) -> str | None:
        try:
            return os.readlink(self._owner)
        except OSError:
            return None

    def _remove_stale(self) -> None:
        """Remove the link of an owner that is gone."""
        found = self._read_link()
        if found is None or not _is_gone(found):
            return
        moved = self._owner.with_name(f"{self._owner.name}.{uuid.uuid4().hex}")
        with suppress(OSError):
            os.rename(self._owner, moved)
            if os.readlink(moved) != found:
                os.rename(moved, self._owner)  # somebody else was faster: it is theirs
            else:
                moved.unlink()


def _identity() -> str:
    pid = os.getpid()
    return f"process {pid} on {socket.gethostname()}, started {_start_of(pid)}"


def _is_gone(owner: str) -> bool:
    """Whether an owner is known to have ended: this host has no such process any more."""
    process, _, started = owner.partition(", started ")
    pid, _, host = process.removeprefix("process ").partition(" on ")
    if host != socket.gethostname() or not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return _start_of(int(pid)) != started


def _start_of(pid: int) -> str:
    """When a process started, in clock ticks since boot; empty if it ended, or where unknown."""
    try:
        # The name, in parentheses, may hold spaces.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]
