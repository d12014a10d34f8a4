"""Reading, and reading again."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from serve.recordings import POLL_S, write_recording
from slipstream.errors import BadInput
from slipstream.serve.session import SessionState, ViewerSession

PATIENCE_S = 60


@contextmanager
def watched(*paths: Path) -> Iterator[ViewerSession]:
    session = ViewerSession([str(path) for path in paths])
    session.first_read()
    thread = threading.Thread(target=session.watch, args=(POLL_S,))
    thread.start()
    try:
        yield session
    finally:
        session.close()
        thread.join()


def state_with(
    session: ViewerSession, generation: int = 0, has_error: bool = False
) -> SessionState:
    """The state, once it is of that generation, or has an error."""
    state = session.state
    while state.generation < generation or bool(state.error) < has_error:
        later = session.wait(state, PATIENCE_S)
        assert later != state, "nothing happened"
        state = later
    return state


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = write_recording(tmp_path / "host.xplane.pb", steps=2)
    with watched(path) as session:
        assert len(session.scene().members[0].profile.events) == 6
        write_recording(path, steps=4)
        state_with(session, generation=2)
        assert len(session.scene().members[0].profile.events) == 12


def test_a_new_run_in_a_log_folder_is_shown(tmp_path: Path) -> None:
    runs = tmp_path / "plugins" / "profile"
    write_recording(runs / "2026_01_01" / "host.xplane.pb", steps=2)
    with watched(tmp_path) as session:
        write_recording(runs / "2026_01_02" / "host.xplane.pb", steps=5)
        state_with(session, generation=2)
        assert len(session.scene().members[0].profile.events) == 15


def test_a_broken_file_leaves_what_was_there(tmp_path: Path) -> None:
    path = write_recording(tmp_path / "host.xplane.pb", steps=2)
    with watched(path) as session:
        path.write_bytes(b"")
        assert "is empty" in state_with(session, has_error=True).error
        assert len(session.scene().members[0].profile.events) == 6
        write_recording(path, steps=3)
        assert state_with(session, generation=2).error == ""


def test_a_file_that_only_looks_new_is_not_missed(tmp_path: Path) -> None:
    path = write_recording(tmp_path / "host.xplane.pb")
    with watched(path) as session:
        os.utime(path, ns=(1, 1))
        assert state_with(session, generation=2).generation == 2


def test_who_waits_for_a_path_that_is_not_there_is_told(tmp_path: Path) -> None:
    session = ViewerSession([str(tmp_path / "nothing")])
    with pytest.raises(BadInput, match="does not exist"):
        session.first_read()
    with pytest.raises(BadInput, match="does not exist"):
        session.scene(PATIENCE_S)
    assert session.state.is_over and "does not exist" in session.state.error


def test_reading_is_reported(tmp_path: Path) -> None:
    path = write_recording(tmp_path / "host.xplane.pb")
    seen: list[tuple[int, int]] = []
    ViewerSession([str(path)], progress=lambda done, total: seen.append((done, total))).first_read()
    assert seen[-1] == (path.stat().st_size,) * 2
