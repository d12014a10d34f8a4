"""Files that are either complete or absent, under names that stay in their folder.

What is already under a name decides how it is written:

    nothing, or a file    a temporary file next to it, which replaces it at the end
    a link                the file that it points to, in the same way; the link stays
    a pipe, a terminal,   the bytes go into it once they are complete; it is never replaced
    /dev/null, /dev/fd/1
    anything else         refused: a folder, a disk, a socket

A URL (`s3://bucket/name`) gets the file once it is complete. If it can't be uploaded, the file
stays where it is, and the error says where.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from slipstream.errors import BadInput, SlipstreamError
from slipstream.remote.paths import RemotePath, any_path

PRIVATE = 0o600
"""the mode of files that hold a command or an environment"""
MARKER = ".slipstream"
"""in a folder that Slipstream made, and may therefore empty"""
_NEW_FILE = 0o666
"""less the umask, as for any new file"""
_MOST_LINKS = 40
_LONGEST_NAME = 100


@contextmanager
def atomic_write(path: str | os.PathLike[str], *, is_private: bool = False) -> Iterator[Path]:
    """A temporary path for new content: it becomes `path` at the end, or is removed on failure.

    A file that exists keeps its mode and, if we may give it away, its owner. A private file is
    readable by its owner only.
    """
    target = any_path(path)
    if isinstance(target, RemotePath):
        with _uploaded(target) as temporary:
            yield temporary
        return
    try:
        through = _special(target)
        real = Path(os.path.realpath(target))
        temporary = _temporary_file() if through is not None else _sibling(real, is_private)
    except OSError as error:
        raise _cannot_write(target, error) from None
    try:
        yield temporary
        if through is not None:
            _pour(temporary, through)
            temporary.unlink()
        else:
            os.replace(temporary, real)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise _cannot_write(target, error) from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def _uploaded(target: RemotePath) -> Iterator[Path]:
    """A temporary file that is uploaded at the end; it stays if only that fails."""
    from slipstream.remote.upload import upload

    folder = Path(tempfile.mkdtemp(prefix="slipstream-"))
    temporary = folder / (target.name or "file")
    temporary.touch(PRIVATE)
    try:
        yield temporary
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    try:
        upload(temporary, target)
    except SlipstreamError as error:
        raise type(error)(f"{error}; what was written is in {temporary}") from None
    shutil.rmtree(folder, ignore_errors=True)


def open_private(path: Path) -> BinaryIO:
    """A new, unbuffered file for the output of a job, readable by its owner only."""
    handle = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC, PRIVATE)
    return os.fdopen(handle, "wb", buffering=0)


def make_folder(folder: Path) -> Path:
    """Create a folder and its parents; BadInput if that is not possible."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(
            f"can't create the folder {folder}: {error.strerror or error}; choose another place"
        ) from None
    return folder


def mark_folder(folder: Path) -> Path:
    """Create a folder that `empty_folder` may empty."""
    make_folder(folder)
    (folder / MARKER).touch()
    return folder


def is_ours(folder: Path) -> bool:
    """Whether a folder was made by `mark_folder`, or holds nothing, or does not exist."""
    marker = folder / MARKER
    try:
        # Looked at twice: another process may mark it now, and that comes before anything else.
        return marker.exists() or not any(folder.iterdir()) or marker.exists()
    except FileNotFoundError:
        return not folder.is_symlink()
    except OSError:  # a file, or a folder that can't be read
        return False


def empty_folder(folder: Path, marked: Path | None = None) -> None:
    """Remove what is in a folder that we made; BadInput if somebody else made it.

    The marker may be in a folder around it, `marked`. It stays, so that other processes never see
    the folder without it.
    """
    marked = folder if marked is None else marked
    if not is_ours(marked):
        raise not_ours(marked)
    if folder != marked:
        shutil.rmtree(folder, ignore_errors=True)
        return
    for entry in folder.iterdir() if folder.is_dir() else ():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        elif entry.name != MARKER:
            with suppress(OSError):
                entry.unlink()


def not_ours(path: Path) -> BadInput:
    """The error for something in the way that Slipstream did not make."""
    return BadInput(
        f"{path} is in the way: no {MARKER} file says that Slipstream made it, so it is left as "
        "it is; choose another folder, or move it away"
    )


def file_name(text: str) -> str:
    """A text from a recording as the name of a file: never a path, never hidden, never long."""
    return re.sub(r"[^\w.-]", "_", text).lstrip(".")[:_LONGEST_NAME] or "unnamed"


def is_stdout(path: str | os.PathLike[str]) -> bool:
    """Whether what is written there comes out of standard output: /dev/stdout, /dev/fd/1, …"""
    try:
        return os.path.samestat(os.stat(path), os.fstat(1))
    except (OSError, ValueError):
        return False


def _special(target: Path) -> Path | None:
    """Where the bytes have to be poured into; None for a file, or if there is nothing yet."""
    place = target
    for _ in range(_MOST_LINKS):
        parent = Path(os.path.realpath(place.parent))
        if parent.parts[:2] == ("/", "proc"):
            # /dev/stdout and /dev/fd/N lead here: these links are doors, not names. Replacing the
            # file behind one would leave whoever redirected the output with the old file.
            return parent / place.name
        if not place.is_symlink():
            break
        place = parent / os.readlink(place)
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
        return target
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(0, "it is a folder")
    if not stat.S_ISREG(mode):
        raise OSError(0, "it is neither a file nor a pipe")
    _check_writable(target)
    return None


def _check_writable(file: Path) -> None:
    """PermissionError for a read-only file, which a rename would replace all the same.

    Opened rather than asked about: `os.access` also says no to a file that another process has
    just removed.
    """
    try:
        os.close(os.open(file, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC))
    except PermissionError:
        raise PermissionError(0, "the file is read-only") from None
    except FileNotFoundError:
        pass


def _sibling(real: Path, is_private: bool) -> Path:
    """A new file next to another, with the mode of that one if it exists."""
    temporary = real.with_name(f".{file_name(real.name)}.{secrets.token_hex(6)}")
    # The system applies the umask: reading it would mean changing it, for all threads.
    mode = PRIVATE if is_private else _NEW_FILE
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, mode))
    try:
        old = os.stat(real)
    except FileNotFoundError:
        return temporary
    new = os.stat(temporary)
    if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
        with suppress(OSError):
            os.chown(temporary, old.st_uid, old.st_gid)
    if not is_private:
        os.chmod(temporary, stat.S_IMODE(old.st_mode))
    return temporary


def _temporary_file() -> Path:
    handle, name = tempfile.mkstemp(prefix="slipstream-")
    os.close(handle)
    return Path(name)


def _pour(source: Path, place: Path) -> None:
    if sys.stdout is not None:  # what was printed before comes first
        with suppress(ValueError):
            sys.stdout.flush()
    with source.open("rb") as content, os.fdopen(_opened(place), "wb") as output:
        shutil.copyfileobj(content, output)


def _opened(place: Path) -> int:
    """A handle for writing; for one of our own handles, a copy that shares its position."""
    if place.parent == Path(f"/proc/{os.getpid()}/fd") and place.name.isdigit():
        return os.dup(int(place.name))
    return os.open(place, os.O_WRONLY | os.O_NOCTTY)


def _cannot_write(target: Path, error: OSError) -> BadInput:
    return BadInput(f"can't write {target}: {error.strerror or error}; choose another place")
