"""The folder of a run: what is where, who may write to it, and what a later run may reuse.

    slipstream-run/
      run.json              what was run
      lock                  held by the `slipstream run` that works here
      .slipstream           marks this folder, and those below, as made by Slipstream
      profile/rank0/        a profile of the hot program: profiles/, programs/, done.json;
                            output.txt and log.txt of a run just for the profile
      costs/                costs.pb and its manifest, done.json
      compare/rank0/        the job: profiles/, programs/, agent.log, comparison.json, done.json
                            report.html if a tracker got it
      receipt.json, .html   the verdict, and everything needed to repeat it

Profile and costs are there whether they were made inside the job or in a run just for them. Files
are written atomically. A phase counts only with its `done.json`, which is written last and holds
the sha256 of every file that a later run would use. What has one of these names and is not marked
is somebody else's: the folder is then refused.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from slipstream.errors import BadInput
from slipstream.reading import object_or_none
from slipstream.run.lock import Lock
from slipstream.writing import MARKER, atomic_write, empty_folder, is_ours, mark_folder, not_ours

DONE = "done.json"
FAILED = "failed.json"
STATUS = "status.json"
REQUEST = "request.json"
"""what the launcher asks of the agent"""
CLAIM = "claim"
"""held by the process of the job that is measured, as long as it lives"""
RUN, RECEIPT, PAGE = "run.json", "receipt.json", "receipt.html"
LAYOUTS, CACHE = "layouts", "cache"
FILES = (RUN, RECEIPT, PAGE, "lock")
FOLDERS = ("profile", "costs", "compare", LAYOUTS, CACHE)
FORMAT = 1


class RunDir:
    """The folder of one run, as one rank sees it."""

    def __init__(self, folder: str | os.PathLike[str], rank: int = 0) -> None:
        self.folder = Path(folder).absolute()
        self.rank = rank

    @property
    def profile(self) -> Path:
        return self.folder / "profile" / f"rank{self.rank}"

    @property
    def costs(self) -> Path:
        return self.folder / "costs"

    @property
    def costs_file(self) -> Path:
        return self.costs / "costs.pb"

    @property
    def compare(self) -> Path:
        return self.folder / "compare" / f"rank{self.rank}"

    def of(self, rank: int) -> RunDir:
        """The same folder, as another rank sees it."""
        return RunDir(self.folder, rank)

    def open(self, warn: Callable[[str], None]) -> Lock:
        """Create the folder and lock it; BadInput if another run works in it."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(
                f"can't create {self.folder}: {error.strerror}; choose another folder with --out"
            ) from None
        self._refuse_others()
        name = "lock" if self.rank == 0 else f"lock.rank{self.rank}"
        lock = Lock(self.folder / name)
        if not lock.take():
            raise BadInput(
                f"another slipstream run works in {self.folder} ({lock.holder()}); wait for it, or "
                "choose another folder with --out; if both are processes of one job, give each its "
                "--rank N/COUNT"
            )
        if (self.compare / CLAIM).exists() and not Lock(self.compare / CLAIM).is_free():
            lock.release()
            raise BadInput(
                f"the job of an earlier slipstream run still runs in {self.folder} "
                f"({Lock(self.compare / CLAIM).holder()}); wait for it, or choose another folder "
                "with --out"
            )
        if lock.note:
            warn(lock.note)
        return lock

    def clear(self, phase: Path) -> Path:
        """Empty the folder of a phase that begins; BadInput if somebody else made it."""
        marked = self._marked(phase)
        empty_folder(phase, marked)
        mark_folder(marked)
        phase.mkdir(parents=True, exist_ok=True)
        return phase

    def remove(self, phase: Path) -> None:
        """Remove what is in the folder of a phase, if we made it."""
        with suppress(BadInput):
            empty_folder(phase, self._marked(phase))

    def _marked(self, phase: Path) -> Path:
        """The folder with the marker: all ranks share it."""
        return self.folder / phase.relative_to(self.folder).parts[0]

    def _refuse_others(self) -> None:
        """BadInput if something of another origin has one of our names; else mark the folder."""
        # Another rank may be creating these right now: a marker comes before anything else.
        there = [self.folder / name for name in FILES if (self.folder / name).exists()]
        if there and not (self.folder / MARKER).exists():
            raise not_ours(there[0])
        for name in FOLDERS:
            if not is_ours(self.folder / name):
                raise not_ours(self.folder / name)
        with suppress(OSError):  # on a full disk the job runs, and nothing is overwritten
            mark_folder(self.folder)


def write_json(path: Path, data: Any, *, is_private: bool = False) -> Path:
    """Write JSON atomically; a private file is readable by its owner only."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path, is_private=is_private) as temporary:
        temporary.write_text(json.dumps(data, indent=1, default=str) + "\n", encoding="utf-8")
    return path


def read_json(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None if the file is missing or damaged."""
    return object_or_none(path)


def mark_done(phase: Path, files: Iterable[Path], facts: Mapping[str, Any]) -> Path:
    """Mark a phase as done, with the hashes of its files."""
    hashes = {str(file.relative_to(phase)): sha256(file) for file in sorted(files)}
    return write_json(phase / DONE, {"format": FORMAT, "files": hashes, "facts": dict(facts)})


def done_facts(phase: Path) -> dict[str, Any] | None:
    """The facts of a phase that is done; None if it isn't, or if a file has changed since."""
    found = read_json(phase / DONE)
    if found is None or found.get("format") != FORMAT:
        return None
    files = found.get("files")
    facts = found.get("facts")
    if not isinstance(files, dict) or not isinstance(facts, dict):
        return None
    fits = all(_hash_or_none(phase / name) == digest for name, digest in files.items())
    return facts if fits else None


def sha256(file: Path) -> str:
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _hash_or_none(file: Path) -> str | None:
    try:
        return sha256(file)
    except OSError:
        return None
