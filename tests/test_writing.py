"""Files are complete or absent, and go where they should."""

import errno
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.errors import BadInput
from slipstream.writing import (
    _special,
    atomic_write,
    empty_folder,
    file_name,
    is_ours,
    make_folder,
    mark_folder,
)


def write(path, text="new", **options):
    with atomic_write(path, **options) as temporary:
        temporary.write_text(text)


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def test_the_file_appears_whole(tmp_path):
    target = tmp_path / "out.csv"
    target.write_text("old")
    with atomic_write(target) as temporary:
        temporary.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert os.listdir(tmp_path) == ["out.csv"]


def test_a_failure_leaves_what_was_there(tmp_path):
    target = tmp_path / "out.csv"
    target.write_text("old")
    with pytest.raises(ZeroDivisionError), atomic_write(target) as temporary:
        temporary.write_text("half")
        raise ZeroDivisionError
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["out.csv"]


def test_others_may_read_it_as_any_new_file(tmp_path):
    (tmp_path / "plain").touch()
    write(tmp_path / "out")
    assert mode(tmp_path / "out") == mode(tmp_path / "plain")


def test_a_file_keeps_its_mode(tmp_path):
    target = tmp_path / "script.sh"
    target.write_text("old")
    target.chmod(0o750)
    with atomic_write(target) as temporary:
        # While it is written, the new content is no easier to read than the old.
        assert mode(temporary) == 0o750
        temporary.write_text("new")
    assert mode(target) == 0o750


def test_a_private_file_is_for_its_owner_even_if_it_was_public(tmp_path):
    (tmp_path / "a").touch(0o644)
    for name in ("a", "b"):
        write(tmp_path / name, is_private=True)
        assert mode(tmp_path / name) == 0o600


def test_the_umask_of_the_process_is_never_changed(tmp_path, monkeypatch):
    """It belongs to all threads: a file that another one creates meanwhile would be public."""
    monkeypatch.setattr(os, "umask", lambda mask: pytest.fail("the umask was changed"))
    write(tmp_path / "a")
    write(tmp_path / "a")


def test_other_threads_files_keep_their_modes(hostile):
    """The race as it was found, for a shorter time."""
    script = (hostile / "umask_race.py").read_text().replace("time.time()+5", "time.time()+0.5")
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("0 of "), done.stdout


def test_a_long_name(tmp_path):
    write(tmp_path / ("é" * 120), "long")
    assert (tmp_path / ("é" * 120)).read_text() == "long"


def test_a_read_only_file_stays(tmp_path, monkeypatch):
    (tmp_path / "a").touch(0o444)
    open_file = os.open

    def opened(path, flags, *mode):
        """Root may write everything, and tests may run as root."""
        if not flags & os.O_CREAT and not os.stat(path).st_mode & 0o200:
            raise PermissionError(errno.EACCES, "Permission denied")
        return open_file(path, flags, *mode)

    monkeypatch.setattr(os, "open", opened)
    with pytest.raises(BadInput, match="the file is read-only"):
        write(tmp_path / "a")


def test_a_file_that_another_process_removes_meanwhile(tmp_path, monkeypatch):
    target = tmp_path / "a"
    target.touch()
    look = os.stat

    def removed_after(path, **options):
        found = look(path, **options)
        if path == target and not options:
            target.unlink()
        return found

    monkeypatch.setattr(os, "stat", removed_after)
    write(target)
    monkeypatch.undo()
    assert target.read_text() == "new"


def test_a_folder_that_is_not_there(tmp_path):
    target = tmp_path / "nowhere" / "out.csv"
    with pytest.raises(BadInput, match="can't write .*nowhere/out.csv: No such file"):
        atomic_write(target).__enter__()


# What is not a file.


def test_a_link_stays_and_its_file_is_written(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "latest.html").symlink_to("data/report.html")
    for text in ("first", "second"):  # the link dangles at first
        write(tmp_path / "latest.html", text)
        assert os.readlink(tmp_path / "latest.html") == "data/report.html"
        assert (tmp_path / "data" / "report.html").read_text() == text
    assert os.listdir(tmp_path / "data") == ["report.html"]


def test_links_in_a_circle(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(BadInput, match="can't write .*/a: "):
        write(tmp_path / "a")


def test_a_device_stays_what_it_is():
    """Like /dev/null, which a test must not risk: nobody can put a file next to a terminal."""
    ours, terminal = os.openpty()
    device = os.ttyname(terminal)
    before = os.stat(device)
    write(device, "to the device")
    assert os.read(ours, 100) == b"to the device"
    after = os.stat(device)
    assert (before.st_ino, before.st_mode) == (after.st_ino, after.st_mode)
    os.close(ours)
    os.close(terminal)


def test_dev_null_through_a_link(tmp_path):
    (tmp_path / "out").symlink_to("/dev/null")
    if os.access("/dev", os.W_OK):  # never write there if a defect could replace it
        assert _special(tmp_path / "out") == tmp_path / "out"
        return
    write(tmp_path / "out")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_a_pipe_gets_the_bytes(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    found = []
    read = lambda: found.append((tmp_path / "pipe").read_text())  # noqa: E731
    reader = threading.Thread(target=read, daemon=True)  # one that waits in vain ends with us
    reader.start()
    write(tmp_path / "pipe", "through the pipe")
    reader.join(300)
    assert found == ["through the pipe"]
    assert stat.S_ISFIFO(os.stat(tmp_path / "pipe").st_mode)
    assert os.listdir(tmp_path) == ["pipe"]


def test_a_folder_is_refused(tmp_path):
    (tmp_path / "out").mkdir()
    with pytest.raises(BadInput, match="can't write .*out: it is a folder"):
        write(tmp_path / "out")
    assert (tmp_path / "out").is_dir()


def test_a_socket_is_refused(tmp_path):
    import socket

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        with pytest.raises(BadInput, match="neither a file nor a pipe"):
            write(tmp_path / "s")


@pytest.mark.parametrize("redirected", [True, False])
@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_standard_output_is_written_in_order(tmp_path, name, redirected):
    """A file behind it is not replaced: the shell holds it open, at a position."""
    script = (
        "from slipstream.writing import atomic_write\n"
        "print('before')\n"
        f"with atomic_write({name!r}) as temporary: temporary.write_text('content\\n')\n"
        "print('after')\n"
    )
    out = tmp_path / "out"
    with out.open("w") as file:
        done = subprocess.run(
            [sys.executable, "-c", script], check=True, stdout=file if redirected else -1
        )
    found = out.read_text() if redirected else done.stdout.decode()
    assert found == "before\ncontent\nafter\n"


# Names and folders.


@given(st.text(max_size=300))
def test_a_text_from_a_recording_is_one_name(text):
    name = file_name(text)
    assert name == os.path.basename(name)
    assert name not in ("", ".", "..") and not name.startswith(".")
    assert len(os.fsencode(name)) <= 255 - 20 or len(name) <= 100


def test_only_a_folder_that_we_made_is_emptied(tmp_path):
    ours, theirs = mark_folder(tmp_path / "ours"), tmp_path / "theirs"
    theirs.mkdir()
    for folder in (ours, theirs):
        (folder / "deep").mkdir()
        (folder / "deep" / "file").write_text("content")
    (ours / "link").symlink_to(theirs)
    empty_folder(ours)
    empty_folder(tmp_path / "nowhere")
    with pytest.raises(BadInput, match="theirs is in the way.*left as it is"):
        empty_folder(theirs)
    assert os.listdir(ours) == [".slipstream"]
    assert (theirs / "deep" / "file").read_text() == "content"


def test_a_link_to_nothing_is_not_a_folder_of_ours(tmp_path):
    """What is created through it would be somewhere else."""
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    assert is_ours(tmp_path / "nothing") and not is_ours(tmp_path / "link")
    with pytest.raises(BadInput, match="is in the way"):
        empty_folder(tmp_path / "link")


def test_a_folder_that_can_not_be_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="can't create the folder .*choose another place"):
        make_folder(tmp_path / "file" / "folder")


# Faults. See docs/reliability.md.

WRITER = """
import os, signal, sys
from pathlib import Path
from slipstream.writing import atomic_write
last = int(sys.argv[2])
count = 0
def trap(event, arguments):
    # Python announces every open, rename, chmod and removal before the system call.
    global count
    if event in ("open", "os.rename", "os.chmod", "os.chown", "os.remove"):
        count += 1
        if count == last:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(trap)
with atomic_write(sys.argv[1]) as temporary:
    with temporary.open("wb", buffering=0) as file:
        for part in range(4):
            file.write(b"new " * 1000)
            trap("open", ())  # between two writes
print("complete", flush=True)
"""


def test_kill_9_at_every_step_leaves_the_old_file_or_the_new_one(tmp_path):
    target = tmp_path / "out"
    seen = []
    for last in range(1, 100):
        target.write_text("old")
        done = subprocess.run(
            [sys.executable, "-c", WRITER, target, str(last)], capture_output=True, check=False
        )
        seen.append(target.read_bytes())
        assert seen[-1] in (b"old", b"new " * 4000)
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
    assert last > 6
    assert seen[0] == b"old"
    assert seen[-1] == b"new " * 4000


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    target = tmp_path / "out"
    target.write_text("old")

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    refused = pytest.raises(BadInput, match="can't write .*: No space left on device")
    with refused, atomic_write(target) as temporary:
        temporary.write_text("half")
        full()
    assert os.listdir(tmp_path) == ["out"]
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(BadInput, match="No space left on device"):
        write(target)
    assert os.listdir(tmp_path) == ["out"]
    assert target.read_text() == "old"


def test_a_folder_that_another_process_marks_meanwhile_is_ours(tmp_path, monkeypatch):
    listed = Path.iterdir

    def marked_meanwhile(folder):
        mark_folder(folder)
        return listed(folder)

    monkeypatch.setattr(Path, "iterdir", marked_meanwhile)
    assert is_ours(tmp_path)
