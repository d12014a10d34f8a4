"""Recordings read by workers that may die, some of them damaged."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from slipstream import BadInput
from slipstream.analyses.hosts import hosts
from slipstream.analyses.summary import summary
from slipstream.fleet import pool, read
from slipstream.fleet.read import is_fleet, read_fleet
from slipstream.profile.profile import Profile

DIES = """
import os, sys
try:
    os.mkdir(sys.argv[1])
except FileExistsError:
    from slipstream.fleet.worker import main
    main()
else:
    os.kill(os.getpid(), 9)
"""
"""a worker that is killed, the first time that it is started"""


def test_all_hosts_but_the_damaged(folder: Path, whole: Profile, tmp_path: Path) -> None:
    run = shutil.copytree(folder, tmp_path / "run")
    (run / "b2.xplane.pb").write_bytes(b"")
    (run / "b3.xplane.pb").write_bytes((run / "a.xplane.pb").read_bytes()[:-200_000])
    seen: list[tuple[int, int]] = []
    found = read_fleet(run, jobs=2, progress=lambda *done: seen.append(done))
    assert len(found.digests) == 4
    assert [Path(one.source).name for one in found.unread] == ["b2.xplane.pb", "b3.xplane.pb"]
    assert "b2.xplane.pb is empty" in found.unread[0].reason
    assert found.summary.per_step == summary(whole).per_step
    assert found.hosts.rows == hosts(whole).rows
    assert found.hosts.notes[0].startswith("2 of 6 recordings could not be read, and are left out")
    total = sum(file.stat().st_size for file in run.iterdir())
    assert len(seen) == 6 and seen[-1] == (total, total)
    # Their digests have no more than they need.
    assert all(one.sums is None and len(one.profile.events) < 400 for one in found.digests)


def test_another_worker_takes_the_recording_of_a_killed_one(
    folder: Path, whole: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = (sys.executable, "-c", DIES, str(tmp_path / "died"))
    monkeypatch.setattr(pool.ProcessWorker, "command", command)
    said: list[str] = []
    found = read_fleet(folder, jobs=1, notice=said.append)
    assert said == [
        "lost a worker (its process was ended by SIGKILL, maybe for want of memory); another one "
        "reads a.xplane.pb"
    ]
    assert not found.unread and found.summary.per_step == summary(whole).per_step


def test_a_recording_that_no_worker_survives(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = (sys.executable, "-c", "raise SystemExit('no room')")
    monkeypatch.setattr(pool.ProcessWorker, "command", command)
    with pytest.raises(BadInput, match=r"none of the 4 .*first: [a-d].xplane.pb: 2 workers"):
        read_fleet(folder, jobs=2)


def test_an_error_of_ours_ends_the_reading(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Any, task: Any) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(pool.ProcessWorker, "digest", broken)
    with pytest.raises(RuntimeError, match="broken"):
        read_fleet(folder, jobs=2)


def test_large_runs_of_several_hosts_are_fleets(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = sum(file.stat().st_size for file in folder.iterdir())
    assert not is_fleet(str(folder))
    monkeypatch.setattr(read, "FLEET_BYTES", size)
    assert is_fleet(str(folder))
    assert not is_fleet(str(folder / "a.xplane.pb"))
    shutil.copy(folder / "a.xplane.pb", tmp_path)
    monkeypatch.setattr(read, "FLEET_BYTES", 1)
    assert not is_fleet(str(tmp_path))
