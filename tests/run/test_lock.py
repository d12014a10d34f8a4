"""Lock files, on file systems with and without flock."""

import errno
import os
import socket
import subprocess
import sys

import pytest

from slipstream.run.lock import Lock


@pytest.fixture(params=["flock", errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EIO])
def any_system(request, monkeypatch):
    """A file system with flock, or one whose flock fails with this error."""
    if request.param != "flock":
        _without_flock(monkeypatch, request.param)
    return request.param


@pytest.fixture
def no_flock(monkeypatch):
    _without_flock(monkeypatch, errno.ENOSYS)


def _without_flock(monkeypatch, code):
    def flock(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("fcntl.flock", flock)


def test_a_lock_has_one_holder(tmp_path, any_system):
    lock, other = Lock(tmp_path / "lock"), Lock(tmp_path / "lock")
    assert lock.take()
    assert not other.take()
    assert f"process {os.getpid()} on {socket.gethostname()}" in other.holder()
    other.release()
    assert not other.is_free()
    lock.release()
    assert other.is_free()
    assert bool(lock.note) == (any_system != "flock")


def test_a_lock_that_a_fork_lets_go_of_stays_the_parents(tmp_path, any_system):
    lock = Lock(tmp_path / "lock")
    assert lock.take()
    child = os.fork()
    if not child:
        lock.release()
        os._exit(0)
    os.waitpid(child, 0)
    assert not Lock(tmp_path / "lock").take()
    lock.release()
    assert Lock(tmp_path / "lock").is_free()


def test_an_owner_that_is_gone_holds_nothing(tmp_path, no_flock):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    host, own = socket.gethostname(), os.getpid()
    for owner in (
        f"process {ended.pid} on {host}, started 1",
        f"process {own} on {host}, started 1",
    ):
        os.symlink(owner, tmp_path / "lock.owner")
        assert Lock(tmp_path / "lock").is_free()
        assert list(tmp_path.glob("lock.*")) == []


def test_a_process_that_was_not_waited_for_is_gone(tmp_path, no_flock):
    take = f"""
import fcntl
from pathlib import Path
from slipstream.run.lock import Lock
def flock(*_): raise OSError(38, "")
fcntl.flock = flock
assert Lock(Path({str(tmp_path / "lock")!r})).take()
import os; os._exit(0)
"""
    owner = subprocess.Popen([sys.executable, "-c", take])
    os.waitid(os.P_PID, owner.pid, os.WEXITED | os.WNOWAIT)
    assert str(owner.pid) in os.readlink(tmp_path / "lock.owner")
    assert Lock(tmp_path / "lock").is_free()
    assert owner.wait() == 0


def test_a_process_that_ends_by_itself_leaves_no_link(tmp_path):
    take = f"""
import fcntl
from pathlib import Path
from slipstream.run.lock import Lock
def flock(*_): raise OSError(38, "")
fcntl.flock = flock
assert Lock(Path({str(tmp_path / "lock")!r})).take()
"""
    subprocess.run([sys.executable, "-c", take], check=True)
    assert list(tmp_path.glob("lock.*")) == []


def test_an_owner_on_another_host_may_be_alive(tmp_path, no_flock):
    os.symlink("process 1 on elsewhere, started 1", tmp_path / "lock.owner")
    lock = Lock(tmp_path / "lock")
    assert not lock.take()
    assert lock.holder().startswith("process 1 on elsewhere")
    assert f"remove {tmp_path / 'lock.owner'}" in lock.holder()


def test_without_locks_and_links_it_goes_on(tmp_path, no_flock, monkeypatch):
    def symlink(*_):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr("os.symlink", symlink)
    lock = Lock(tmp_path / "lock")
    assert lock.take()
    assert "make sure that no other run uses it" in lock.note
