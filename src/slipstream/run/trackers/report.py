"""The report of a run's recordings, made by the launcher, beside the job that asked for it.

    the job        asks: report-wanted.json names what was recorded before and after
    the launcher   follows: `slipstream report` in a process of the lowest priority
    the job        finds report.html, and logs it

In the job itself, making it would take time from Python's one lock, and so from the steps.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from slipstream.run.run_dir import read_json, write_json

WANTED, REPORT = "report-wanted.json", "report.html"
_NICE = ("nice", "-n", "19")
_PATIENCE_S = 5.0


def ask(folder: Path, profiles: Mapping[str, Path]) -> None:
    """Let the launcher make it; none of an earlier run is left."""
    (folder / REPORT).unlink(missing_ok=True)
    write_json(folder / WANTED, {when: str(path) for when, path in profiles.items()})


def found(folder: Path) -> Path | None:
    """The report, once it is there."""
    file = folder / REPORT
    return file if file.exists() else None


class ReportMaker:
    """What the launcher does about it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._asked: int | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def forget(self) -> None:
        """Remove what an earlier run left."""
        for name in (WANTED, REPORT):
            (self._folder / name).unlink(missing_ok=True)

    def follow(self) -> None:
        """Start to make it, once each time that the job asks."""
        try:
            asked = (self._folder / WANTED).stat().st_mtime_ns
        except OSError:
            return
        if asked != self._asked:
            self._asked = asked
            self.end()
            self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes] | None:
        command = _command(read_json(self._folder / WANTED) or {}, self._folder / REPORT)
        if command is None:
            return None
        # Where there is no `nice`, it has the launcher's own priority.
        for words in ([*_NICE, *command], command):
            try:
                return subprocess.Popen(
                    words,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            except OSError:
                continue
        return None

    def end(self) -> None:
        """The job has ended, or wants another one: nobody waits for this one."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None


def _command(profiles: Mapping[str, str], target: Path) -> list[str] | None:
    before, after = profiles.get("before"), profiles.get("after")
    newest = after or before
    if newest is None:
        return None
    against = ["--against", before] if after and before else []
    # -P: a folder called slipstream in the working directory is not this package.
    own = [sys.executable, "-P", "-m", "slipstream"]
    return [*own, "report", newest, *against, "--output", str(target)]
