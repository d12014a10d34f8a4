"""The job as a child process: the terminal is the job's, signals come once, exit codes are kept."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from run_jobs import LONGEST_S, environment, is_alive, wait_until, wait_while_alive
from slipstream.bench.timed_run import _grace_s
from slipstream.errors import BadInput
from slipstream.run import launcher, profile_phase
from slipstream.run.launcher import Job, SignalForwarder, running
from slipstream.run.profile_phase import ProfilePhase

ASKING = """
import sys, time
print("terminal", sys.stdin.isatty(), sys.stdout.isatty())
print("ready", flush=True)
try:
    print("got", input(), flush=True)
    time.sleep(600)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    time.sleep(0.3)
sys.exit(9)
"""

STANDS_FOR_A_JOB = """
import subprocess, sys, time
from slipstream.run.launcher import watchdog
job = subprocess.Popen(["sh", "-c", "sleep 600 & wait"], process_group=0)
with watchdog(job.pid):
    print(job.pid, flush=True)
    sys.stdin.readline()
print("out of the block", flush=True)
time.sleep(600)
"""

SLEEP = ["sh", "-c", "sleep 600"]
# A profile run is to die with us, which is arranged between fork and exec.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*")


class Terminal:
    """A command with a terminal of its own, as a person has it in front of them."""

    def __init__(self, command, **more):
        self.pid, self._side = pty.fork()
        if self.pid == 0:
            # A suite that a script started in the background ignores Ctrl-C; a terminal doesn't.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.execve(command[0], command, environment(**more))
        self.shown = ""

    def read_until(self, text, seconds=LONGEST_S):
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
        stat = Path(f"/proc/{self.pid}/stat")
        wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")

    def end(self):
        self.read_until("verdict")
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self._side)
        return code


def test_the_terminal_is_the_jobs(tmp_path):
    (tmp_path / "job.py").write_text(ASKING)
    job = [sys.executable, str(tmp_path / "job.py")]
    run = [sys.executable, "-m", "slipstream", "run", "--out", str(tmp_path / "out")]
    terminal = Terminal([*run, "--", *job])
    terminal.read_until("ready")
    assert "terminal True True" in terminal.shown
    terminal.type("\x1a")
    terminal.wait_until_stopped()
    # What is typed meanwhile waits until the job reads the terminal again.
    terminal.type("hello\n")
    os.kill(terminal.pid, signal.SIGCONT)
    terminal.read_until("got hello")
    terminal.type("\x03")
    terminal.read_until("interrupted")
    assert terminal.end() == 9
    assert "Traceback" not in terminal.shown


def test_a_signal_before_the_job_is_for_the_job():
    passed = []
    with SignalForwarder() as signals:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGUSR1)
        wait_until(lambda: len(signals.caught) == 2)
        signals.forward_to(passed.append)
        os.kill(os.getpid(), signal.SIGTERM)
        wait_until(lambda: len(passed) == 3)
    assert sorted(passed[:2]) == sorted([signal.SIGINT, signal.SIGUSR1])
    assert sorted(signals.ending) == sorted([signal.SIGINT, signal.SIGTERM])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_we_ignore_the_job_ignores():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with running(["sh", "-c", "kill -HUP $$; exit 4"], os.environ) as job:
            assert job.wait() == 4
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_job_that_was_asked_to_end_as_its_capture_was_done_ends_all(tmp_path, monkeypatch):
    monkeypatch.setattr(profile_phase, "PATIENCE_S", LONGEST_S)
    script = f"trap 'sleep 0.2; exit 7' INT; touch {tmp_path}/begun; while :; do sleep 0.05; done"
    phase = SimpleNamespace(
        context=SimpleNamespace(settings=SimpleNamespace(nsys=False)),
        _all_recorded=lambda: lambda: bool(job.signals.ending),
    )
    with running(["sh", "-c", script], os.environ) as job:
        wait_until((tmp_path / "begun").exists, job.poll)
        os.kill(os.getpid(), signal.SIGINT)
        assert ProfilePhase._wait(phase, job, tmp_path) == 7


@pytest.fixture
def patient(monkeypatch):
    """Who is asked to end has the time for it, however busy the machine is."""
    monkeypatch.setattr(launcher, "PATIENCE_S", LONGEST_S)


def test_a_profile_run_does_not_outlive_a_fault_of_ours(patient):
    with pytest.raises(ZeroDivisionError), running(SLEEP, os.environ, ends_with_us=True) as job:
        raise ZeroDivisionError
    assert job.poll() == 143


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 0", 0), ("exit 3", 3), ("kill -TERM $$", 143), ("kill -KILL $$", 137)],
)
def test_exit_codes_are_those_of_a_shell(script, code):
    assert Job(["sh", "-c", script], os.environ).wait() == code


def test_stopping_ends_all_that_the_job_started(tmp_path, patient):
    file = tmp_path / "pid"
    job = Job(["sh", "-c", f"sleep 600 & echo $! > {file}; wait"], os.environ, ends_with_us=True)
    assert job.wait(lambda: file.exists() and bool(file.read_text())) is None
    job.stop()
    assert job.poll() == 143
    child = int(file.read_text())
    wait_while_alive(child)


def test_a_command_that_can_not_start():
    with pytest.raises(BadInput, match="can't be started: No such file or directory; after --"):
        Job(["no-such-command"], os.environ)


def test_launchers_have_time_to_end_their_ranks():
    srun, plain = (_grace_s(words) for words in (("env", "A=1", "/usr/bin/srun", "job"), ("job",)))
    assert srun > plain


@pytest.fixture
def guarding():
    words = [sys.executable, "-c", STANDS_FOR_A_JOB]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) as process:
        process.job = int(process.stdout.readline())
        try:
            yield process
        finally:
            process.kill()
            if is_alive(process.job):
                os.killpg(process.job, signal.SIGKILL)


def test_who_is_killed_takes_the_whole_group_along(guarding):
    children = Path(f"/proc/{guarding.job}/task/{guarding.job}/children")
    wait_until(lambda: bool(children.read_text()))
    (child,) = map(int, children.read_text().split())
    guarding.kill()
    wait_while_alive(guarding.job)
    wait_while_alive(child)


def test_after_the_block_the_group_is_on_its_own(guarding):
    guarding.stdin.write("\n")
    guarding.stdin.flush()
    assert guarding.stdout.readline() == "out of the block\n"
    # The watchdog was waited for: nobody is left who could end the job.
    guarding.kill()
    guarding.wait()
    assert is_alive(guarding.job)
