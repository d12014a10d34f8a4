"""The job as a child process: the terminal is the job's, signals come once, exit codes are kept."""

import os
import pty
import select
import signal
import sys
import time

import pytest

from run_jobs import environment
from slipstream.errors import BadInput
from slipstream.loop.launch import Job

ASKING = """
import sys, time
print("terminal", sys.stdin.isatty(), sys.stdout.isatty())
print("ready", flush=True)
print("got", input(), flush=True)
try:
    time.sleep(30)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    time.sleep(0.3)
sys.exit(9)
"""


class Terminal:
    """A command with a terminal of its own, as a person has it in front of them."""

    def __init__(self, command, **more):
        self.pid, self._side = pty.fork()
        if self.pid == 0:
            os.execve(command[0], command, environment(**more))
        self.shown = ""

    def read_until(self, text, seconds=60.0):
        end = time.monotonic() + seconds
        while text not in self.shown and time.monotonic() < end:
            if select.select([self._side], [], [], 0.1)[0]:
                try:
                    self.shown += os.read(self._side, 4096).decode(errors="replace")
                except OSError:
                    break
        assert text in self.shown, self.shown

    def type(self, text):
        os.write(self._side, text.encode())

    def wait_until_stopped(self):
        end = time.monotonic() + 10
        while time.monotonic() < end:
            with open(f"/proc/{self.pid}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] == "T":
                    return
            time.sleep(0.01)
        raise AssertionError("it did not stop")

    def end(self):
        self.read_until("verdict")
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self._side)
        return code


def test_the_terminal_is_the_jobs(tmp_path):
    (tmp_path / "job.py").write_text(ASKING)
    job = [sys.executable, str(tmp_path / "job.py")]
    run = [sys.executable, "-m", "slipstream", "run", "--in-place", "--out", str(tmp_path / "out")]
    terminal = Terminal([*run, "--", *job])
    terminal.read_until("ready")
    assert "terminal True True" in terminal.shown
    terminal.type("\x1a")
    terminal.wait_until_stopped()
    os.kill(terminal.pid, signal.SIGCONT)
    time.sleep(0.3)
    terminal.type("hello\n")
    terminal.read_until("got hello")
    terminal.type("\x03")
    terminal.read_until("interrupted")
    assert terminal.end() == 9
    assert "Traceback" not in terminal.shown


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 0", 0), ("exit 3", 3), ("kill -TERM $$", 143), ("kill -KILL $$", 137)],
)
def test_exit_codes_are_those_of_a_shell(script, code):
    assert Job(["sh", "-c", script], os.environ).wait() == code


def test_stopping_ends_all_that_the_job_started(tmp_path):
    file = tmp_path / "pid"
    job = Job(["sh", "-c", f"sleep 60 & echo $! > {file}; wait"], os.environ, ends_with_us=True)
    assert job.wait(lambda: file.exists() and bool(file.read_text())) is None
    job.stop()
    assert job.poll() == 143
    child = int(file.read_text())
    end = time.monotonic() + 10
    while os.path.exists(f"/proc/{child}") and time.monotonic() < end:
        with open(f"/proc/{child}/stat") as stat:
            if stat.read().rpartition(")")[2].split()[0] == "Z":
                break
        time.sleep(0.01)
    assert time.monotonic() < end


def test_a_command_that_can_not_start():
    with pytest.raises(BadInput, match="can't be started: No such file or directory; after --"):
        Job(["no-such-command"], os.environ)
