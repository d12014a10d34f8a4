"""A local folder and its copy in a bucket.

    pull    what the bucket has and the folder lacks, or what is newer in the bucket
    push    what is new in the folder, file by file, once a file is complete

A file next to the others, `.bucket.rank0.json`, notes what both sides had when they were last the
same. What changed here since then is never overwritten. Locks and temporary files stay here, and
credentials do: files that hold a command are copied without them.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path, PurePosixPath
from typing import Any

from slipstream.errors import SlipstreamError
from slipstream.masking import MASK, is_secret_name, mask_command, mask_text
from slipstream.remote.cache import version_of
from slipstream.remote.paths import RemotePath
from slipstream.remote.systems import callback, reaching
from slipstream.remote.upload import upload

_STATE = re.compile(r"\.bucket\.rank\d+\.json")
_TEMPORARY = re.compile(r"\..*\.[0-9a-f]{12}|\.recording-.*")
_LOCKS = re.compile(r"lock(\.rank\d+)?(\.owner.*)?|claim(\.owner.*)?")
_DATABASE = ".sqlite3"
_DATABASE_PARTS = ("-wal", "-shm", "-journal")
_WITH_COMMANDS = ("run.json", "study.json", "plan.json", "request.json")
"""files whose command or database may hold credentials"""
_CACHE = "cache"
"""compiled programs, which a job on another machine makes again"""
_RANK = re.compile(r"rank(\d+)")

Moved = Callable[[str, int], None]
"""called with a file's name and the bytes so far"""
Stamp = tuple[int, int]
"""size and time of a local file"""


class Mirror:
    """One local folder, its copy in a bucket, and the files of one rank in it."""

    def __init__(
        self, folder: Path, bucket: RemotePath, rank: int = 0, moved: Moved | None = None
    ) -> None:
        self.folder, self.bucket, self.rank = folder, bucket, rank
        self._moved = moved or (lambda name, done: None)
        self._state = folder / f".bucket.rank{rank}.json"
        self._same = self._read_state()
        """by name: the local stamp and the bucket's version when both were the same"""
        self._seen: dict[str, Stamp] = {}
        """the stamps at the last look, to see which files are complete"""

    def pull(self, names: Sequence[str]) -> tuple[int, list[str]]:
        """(files copied here, names of those that changed on both sides and stay as they are)."""
        self.bucket.system.invalidate_cache()
        copied, kept = 0, []
        for place in self._in_bucket(names):
            name = place.relative_to(self.bucket).as_posix()
            file, known = self.folder / name, self._same.get(name)
            if not self._is_ours(name) or not is_inside(name):
                continue
            version = version_of(place.info())
            stamp = _stamp(file)
            if known is not None and version == known[2] and stamp is not None:
                continue
            if stamp is not None and (known is None or stamp != tuple(known[:2])):
                kept.append(name)
                continue
            self._download(place, file)
            self._note(name, file, version)
            copied += 1
        self._write_state()
        return copied, kept

    def _in_bucket(self, names: Sequence[str]) -> Iterator[RemotePath]:
        """Files of these names, or below them; the bucket may hold anything else beside them."""
        try:
            places = sorted(self.bucket.iterdir())
        except FileNotFoundError:
            return
        for place in places:
            if place.name in names and place.is_dir():
                yield from place.files()
            elif place.name in names:
                yield place

    def push(self, *, is_last: bool) -> int:
        """Copy what is new to the bucket, and return how many files that were.

        Before the last time, a file counts as complete if it is as it was at the last look.
        """
        copied = 0
        try:
            for name, file in self._files():
                stamp = _stamp(file)
                known = self._same.get(name)
                if stamp is None or (known is not None and stamp == tuple(known[:2])):
                    continue
                is_settled = self._seen.get(name) == stamp or name.endswith(_DATABASE)
                self._seen[name] = stamp
                if is_last or is_settled:
                    self._upload(name, file, stamp)
                    copied += 1
            if is_last:
                self._remove_gone()
        finally:
            self._write_state()
        return copied

    def _files(self) -> Iterator[tuple[str, Path]]:
        for file in sorted(self.folder.rglob("*")):
            name = file.relative_to(self.folder).as_posix()
            if self._is_ours(name) and file.is_file() and not file.is_symlink():
                yield name, file

    def _is_ours(self, name: str) -> bool:
        """Whether a file is copied at all, and by this rank."""
        parts = PurePosixPath(name).parts
        if parts[0] == _CACHE or any(_TEMPORARY.fullmatch(part) for part in parts):
            return False
        if _LOCKS.fullmatch(parts[-1]) or is_state(parts[-1]):
            return False
        if parts[-1].endswith(tuple(_DATABASE + end for end in _DATABASE_PARTS)):
            return False
        ranks = [int(found[1]) for part in parts if (found := _RANK.fullmatch(part))]
        return (ranks[0] if ranks else 0) == self.rank

    def _upload(self, name: str, file: Path, stamp: Stamp) -> None:
        target = self.bucket / name
        self._moved(name, 0)
        with tempfile.TemporaryDirectory(prefix="slipstream-") as folder:
            upload(_prepared(file, Path(folder)), target, lambda done: self._moved(name, done))
        target.system.invalidate_cache(target.parent.key)
        self._same[name] = (*stamp, version_of(RemotePath(str(target)).info()))

    def _download(self, place: RemotePath, file: Path) -> None:
        self._moved(str(place), 0)
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_name(f".{file.name}.{os.urandom(6).hex()}")
        try:
            with reaching(place):
                tell = callback(lambda done: self._moved(str(place), done))
                place.system.get_file(place.key, str(temporary), callback=tell)
            if file.name in _WITH_COMMANDS:
                temporary.chmod(0o600)
            os.replace(temporary, file)
        finally:
            temporary.unlink(missing_ok=True)

    def _remove_gone(self) -> None:
        """Remove from the bucket what we had put there and removed here."""
        for name in [name for name in self._same if _stamp(self.folder / name) is None]:
            with suppress(FileNotFoundError, SlipstreamError):
                (self.bucket / name).unlink()
            del self._same[name]

    def _note(self, name: str, file: Path, version: str) -> None:
        stamp = _stamp(file)
        if stamp is not None:
            self._same[name] = (*stamp, version)

    def _read_state(self) -> dict[str, tuple[int, int, str]]:
        try:
            found = json.loads(self._state.read_text(encoding="utf-8"))
            if found["url"] != str(self.bucket):
                return {}
            return {str(n): (int(a), int(b), str(c)) for n, (a, b, c) in found["files"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}

    def _write_state(self) -> None:
        temporary = self._state.with_name(f"{self._state.name}.{os.urandom(6).hex()}")
        content = {"url": str(self.bucket), "files": self._same}
        with suppress(OSError):  # on a full disk, files are copied once more
            temporary.write_text(json.dumps(content), encoding="utf-8")
            os.replace(temporary, self._state)


def is_state(name: str) -> bool:
    """Whether a file is the note of what was copied."""
    return _STATE.fullmatch(name) is not None


def is_inside(name: str) -> bool:
    """Whether a name from a bucket stays in its folder."""
    parts = PurePosixPath(name).parts
    return bool(parts) and ".." not in parts and not PurePosixPath(name).is_absolute()


def _stamp(file: Path) -> Stamp | None:
    try:
        about = file.stat()
    except OSError:
        return None
    return about.st_size, about.st_mtime_ns


def _prepared(file: Path, folder: Path) -> Path:
    """What is uploaded of a file: itself, or a copy that is consistent, or without secrets."""
    if file.name.endswith(_DATABASE):
        snapshot = folder / file.name
        with (
            closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as source,
            closing(sqlite3.connect(snapshot)) as copy,
        ):
            source.backup(copy)
        return snapshot
    if file.name in _WITH_COMMANDS:
        try:
            data = json.loads(file.read_text(encoding="utf-8"))
        except (ValueError, RecursionError):
            return file
        clean = folder / file.name
        clean.write_text(json.dumps(without_secrets(data), indent=1) + "\n", encoding="utf-8")
        return clean
    return file


def without_secrets(data: Any) -> Any:
    """JSON data as it may leave this machine; a list of texts is taken for a command."""
    if isinstance(data, str):
        return mask_text(data)
    if isinstance(data, dict):
        return {
            key: MASK if isinstance(one, str) and is_secret_name(key) else without_secrets(one)
            for key, one in data.items()
        }
    if isinstance(data, list) and data and all(isinstance(one, str) for one in data):
        return mask_command(data)
    return [without_secrets(one) for one in data] if isinstance(data, list) else data
