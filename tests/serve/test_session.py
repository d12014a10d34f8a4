"""Reading, and reading again."""

from __future__ import annotations

import gc
import itertools
import os
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from serve.recordings import POLL_S, write_recording
from slipstream.errors import BadInput
from slipstream.profile.profile import Profile
from slipstream.serve import session as session_module
from slipstream.serve.session import SessionState, ViewerSession
from slipstream.sources.load import load
from slipstream.sources.prefetch import prefetch

PATIENCE_S = 300


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


def events_shown(session: ViewerSession) -> int:
    return len(session.scene().members[0].profile.events)


def test_a_replaced_file_of_the_same_size_and_time_is_read_again(tmp_path: Path) -> None:
    path = write_recording(tmp_path / "host.xplane.pb", us=20)
    about = path.stat()
    with watched(path) as session:
        other = write_recording(tmp_path / "other.xplane.pb", us=30)
        assert other.stat().st_size == about.st_size
        os.utime(other, ns=(about.st_atime_ns, about.st_mtime_ns))
        other.rename(path)
        state_with(session, generation=2)
        assert session.scene().span_us == pytest.approx(200)


def test_a_file_that_is_overwritten_with_its_old_time_is_read_again(tmp_path: Path) -> None:
    path = write_recording(tmp_path / "host.xplane.pb", us=20)
    about = path.stat()
    with watched(path) as session:
        path.write_bytes(write_recording(tmp_path / "other.xplane.pb", us=30).read_bytes())
        os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
        state_with(session, generation=2)
        assert session.scene().span_us == pytest.approx(200)


def test_a_file_that_goes_is_said_so_and_stays_in_view(tmp_path: Path) -> None:
    path = write_recording(tmp_path / "host.xplane.pb", steps=2)
    with watched(path) as session:
        path.unlink()
        state = state_with(session, has_error=True)
        assert f"{path} does not exist" in state.error and state.generation == 1
        assert events_shown(session) == 6
        write_recording(path, steps=3)
        assert state_with(session, generation=2).error == ""
        assert events_shown(session) == 9


def test_a_file_that_changes_while_it_is_read_is_not_shown_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_recording(tmp_path / "host.xplane.pb", steps=2)
    sizes = iter([3, 4])
    shown: list[int] = []

    def load_and_change(path: str, **options: object) -> Profile:
        profile = load(path, **options)
        if steps := next(sizes, 0):
            write_recording(Path(path), steps)
        shown.append(len(profile.events))
        return profile

    monkeypatch.setattr(session_module, "load", load_and_change)
    session = ViewerSession([str(path)])
    session.first_read()
    assert shown == [6, 9, 12]
    assert (session.state.generation, events_shown(session)) == (1, 12)


def test_a_file_that_never_stays_the_same_is_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_recording(tmp_path / "host.xplane.pb", steps=2)
    changing, seconds = threading.Event(), itertools.count(1)

    def load_and_change(path: str, **options: object) -> Profile:
        profile = load(path, **options)
        if changing.is_set():
            # Not the time it is: two changes may fall into one tick of the file system's clock.
            os.utime(path, (1, next(seconds)))
        return profile

    monkeypatch.setattr(session_module, "load", load_and_change)
    with watched(path) as session:
        changing.set()
        write_recording(path, steps=3)
        error = state_with(session, has_error=True).error
        assert f"{path} changed while it was read, 3 times; is it still being written?" in error
        assert events_shown(session) == 6
        changing.clear()
        assert state_with(session, generation=2).error == ""
        assert events_shown(session) == 9


@pytest.mark.parametrize("failure", [ValueError("odd"), MemoryError(), RecursionError("deep")])
def test_any_exception_while_reading_again_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    path = write_recording(tmp_path / "host.xplane.pb", steps=2)
    with watched(path) as session:

        def fail(path: str, **options: object) -> Profile:
            raise failure

        monkeypatch.setattr(session_module, "load", fail)
        write_recording(path, steps=3)
        error = state_with(session, has_error=True).error
        assert error.startswith(f"{path} could not be read ({type(failure).__name__}: {failure})")
        assert "slipstream summary" in error
        assert events_shown(session) == 6
        monkeypatch.undo()
        os.utime(path, (1, 1))
        assert state_with(session, generation=2).error == ""


def test_an_exception_in_the_first_reading_reaches_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: str, **options: object) -> Profile:
        raise ValueError("odd")

    monkeypatch.setattr(session_module, "load", fail)
    session = ViewerSession([str(tmp_path)])
    with pytest.raises(ValueError, match="odd"):
        session.first_read()
    assert session.state.is_over and "(ValueError: odd)" in session.state.error


@pytest.mark.parametrize("is_replaced", [True, False])
def test_what_was_prefetched_of_an_older_file_is_not_shown(
    tmp_path: Path, is_replaced: bool
) -> None:
    path = write_recording(tmp_path / "host.xplane.pb", steps=2)
    prefetch(str(path))
    other = write_recording(tmp_path / "other.xplane.pb", steps=3)
    if is_replaced:
        other.rename(path)
    else:
        path.write_bytes(other.read_bytes())
    session = ViewerSession([str(path)])
    session.first_read()
    assert events_shown(session) == 9


def test_a_folder_is_polled_less_often_only_if_it_takes_long_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, polls, pauses = [0.0], iter([60.0, 0.1, 2.0, 3.0, 0.01]), []
    session = ViewerSession(["x"])

    def stamps() -> tuple[()]:
        now[0] += next(polls)
        return ()

    def wait(pause: float) -> bool:
        pauses.append(round(pause, 3))
        return len(pauses) == 6

    monkeypatch.setattr(session, "_stamps", stamps)
    monkeypatch.setattr(session, "_stop", SimpleNamespace(wait=wait))
    monkeypatch.setattr(session_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    session.watch(poll_s=1.0)
    assert pauses == [1.0, 1.0, 2.0, 2.0, 40.0, 1.0]


def test_what_was_shown_before_is_freed(tmp_path: Path) -> None:
    path = write_recording(tmp_path / "host.xplane.pb", steps=2)
    gc.disable()
    try:
        with watched(path) as session:
            before = weakref.ref(session.scene().members[0])
            write_recording(path, steps=3)
            state_with(session, generation=2)
            while before() is not None:
                assert session.state.generation == 2
                time.sleep(0.01)
    finally:
        gc.enable()
