"""The job as a child process: started unmodified, signalled as without us, never lost.

    terminal ──Ctrl-C──► the job's process group, which has the terminal
    kill ─────────────► slipstream run ──the same signal──► the job's process group

A profile run ends with us, whatever ends us. The job itself keeps its own input and output and
goes on without us, unless a launcher such as mpirun started us in its place:

    mpirun ──SIGTERM──► slipstream run ──SIGTERM──► the job, which takes it for a notice
    mpirun ──SIGKILL──► slipstream run              the job would go on for ever
                              ╰─ its end of a pipe ─► watchdog ──SIGKILL──► the job's process group

Nobody can pass SIGKILL on, so the watchdog, a small process outside our group, waits for our end.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, Any

from slipstream.errors import BadInput
from slipstream.run.agent.request import ENVIRONMENT

SITE = Path(__file__).parent / "site"
"""holds the sitecustomize.py that starts the agent"""
PATIENCE_S = 10.0
"""between asking a profile run to end and killing it"""
FORWARDED = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2,
)  # fmt: skip
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""signals that ask a job to end"""
_POLL_S = 0.05
_PR_SET_PDEATHSIG = 1
_WATCHDOG = 'read -r line || kill -s KILL -- "-$1"'
"""a line means that all is well; the end of the pipe without one, that we are gone"""

Output = IO[Any] | int | None


def job_environment(
    base: Mapping[str, str], request: Path | None, more: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The user's environment, `more`, and what loads the agent if there is a request for it."""
    environment = {**base, **(more or {})}
    if request is not None:
        paths = [str(SITE), *filter(None, base.get("PYTHONPATH", "").split(os.pathsep))]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
        environment[ENVIRONMENT] = str(request)
    return environment


class CantStart(BadInput):
    """The job's command can't be started."""


@contextmanager
def running(
    command: Sequence[str],
    environment: Mapping[str, str],
    stdout: Output = None,
    stderr: Output = None,
    *,
    ends_with_us: bool = False,
    is_guarded: bool = False,
) -> Iterator[Job]:
    """Start the job; signals to us go to it, from before it starts until the block ends.

    With `is_guarded` the job doesn't outlive us even if we are killed with SIGKILL.
    """
    with SignalForwarder() as signals:
        job = Job(command, environment, stdout, stderr, ends_with_us=ends_with_us, signals=signals)
        signals.forward_to(job.send)
        try:
            with watchdog(job.pid) if is_guarded else nullcontext():
                yield job
        except BaseException:
            if ends_with_us:
                job.stop()
            raise


class Job:
    """A running command, in a process group of its own."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        stdout: Output = None,
        stderr: Output = None,
        *,
        ends_with_us: bool = False,
        signals: SignalForwarder | None = None,
        cwd: str | None = None,
    ) -> None:
        self.ends_with_us = ends_with_us
        self.signals = signals or SignalForwarder()
        """the signals that we received for it"""
        self._terminal = _terminal()
        self._status: int | None = None
        try:
            # Between fork and exec, only system calls.
            self._child = subprocess.Popen(
                list(command),
                env=dict(environment),
                cwd=cwd,
                stdout=stdout,
                stderr=stderr,
                stdin=subprocess.DEVNULL if ends_with_us else None,
                process_group=0,
                preexec_fn=_die_with_parent if ends_with_us else None,
            )
        except OSError as error:
            raise CantStart(
                f"{command[0]} can't be started: {error.strerror}; after -- comes the command as "
                "you would type it without slipstream"
            ) from None
        self._give_terminal(self._child.pid)

    @property
    def pid(self) -> int:
        return self._child.pid

    def poll(self) -> int | None:
        """The exit code once it ended, as a shell reports it: 128 + the signal that ended it."""
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
            if pid and os.WIFSTOPPED(status):
                self._pause()
            elif pid:
                self._status = status
                self._child.returncode = os.waitstatus_to_exitcode(status)
                self._give_terminal(os.getpgrp())
        if self._status is None:
            return None
        code = os.waitstatus_to_exitcode(self._status)
        return code if code >= 0 else 128 - code

    def wait(self, is_enough: Callable[[], bool] = lambda: False) -> int | None:
        """The exit code once the job ends; None as soon as `is_enough` says so."""
        while (code := self.poll()) is None:
            if is_enough():
                return None
            time.sleep(_POLL_S)
        return code

    def wait_at_most(self, seconds: float) -> int | None:
        """As `wait`, for at most this long."""
        end = time.monotonic() + seconds
        return self.wait(lambda: time.monotonic() > end)

    def send(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def stop(self) -> None:
        """End the job and all it started: SIGTERM, and SIGKILL if it doesn't comply."""
        self.send(signal.SIGTERM)
        self.wait_at_most(PATIENCE_S)
        self.send(signal.SIGKILL)
        self.wait()

    # The terminal.

    def _give_terminal(self, group: int) -> None:
        if self._terminal is None or self.ends_with_us:
            return
        # From the background, tcsetpgrp would stop us with this signal.
        before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        with suppress(OSError):
            os.tcsetpgrp(self._terminal, group)
        signal.signal(signal.SIGTTOU, before)

    def _pause(self) -> None:
        """Ctrl-Z stopped the job: stop too, and continue together."""
        if self._terminal is None:
            return
        self._give_terminal(os.getpgrp())
        os.kill(os.getpid(), signal.SIGSTOP)
        self._give_terminal(self.pid)
        self.send(signal.SIGCONT)


def stop_all(jobs: Sequence[Job], grace_s: float) -> None:
    """End jobs and all they started: SIGTERM, and SIGKILL after `grace_s`."""
    # Ranks that lose one another log at length, so all are asked before any is waited for.
    for job in jobs:
        job.send(signal.SIGTERM)
    end = time.monotonic() + grace_s
    while any(job.poll() is None for job in jobs) and time.monotonic() < end:
        time.sleep(_POLL_S)
    # jax.distributed takes SIGTERM for a notice, and the job goes on.
    for job in jobs:
        job.send(signal.SIGKILL)
    while any(job.poll() is None for job in jobs):
        time.sleep(_POLL_S)


class SignalForwarder:
    """Catches signals while the block runs, and forwards them once there is a job.

    Signals to `slipstream run` are meant for its job; none is lost, from before the job starts.
    """

    def __init__(self) -> None:
        self.caught: list[int] = []
        """all of them, in order"""
        self._waiting: list[int] = []
        self._send: Callable[[int], None] | None = None
        self._before: dict[int, Any] = {}

    @property
    def ending(self) -> list[int]:
        """The caught signals that asked the job to end."""
        return [number for number in self.caught if number in ENDING]

    def forward_to(self, send: Callable[[int], None]) -> None:
        self._send = send
        while self._waiting:
            send(self._waiting.pop(0))

    def _catch(self, number: int, frame: object) -> None:
        self.caught.append(number)
        if self._send is None:
            self._waiting.append(number)
        else:
            self._send(number)

    def __enter__(self) -> SignalForwarder:
        for number in FORWARDED:
            # The job inherits what we ignore, as under nohup.
            if signal.getsignal(number) is signal.SIG_IGN:
                continue
            try:
                self._before[number] = signal.signal(number, self._catch)
            except ValueError:
                break  # not the main thread: signals are our caller's business
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()


@contextmanager
def watchdog(group: int) -> Iterator[None]:
    """While the block runs, this process group doesn't outlive us."""
    process = _start_watchdog(group)
    try:
        yield
    finally:
        if process is not None:
            with suppress(OSError):
                process.communicate(b"over\n")


def _start_watchdog(group: int) -> subprocess.Popen[bytes] | None:
    """None if no more processes can be started: the job matters more."""
    try:
        # An inherited output, held open, would keep a launcher waiting for its end.
        return subprocess.Popen(
            ["/bin/sh", "-c", _WATCHDOG, "sh", str(group)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return None


def _terminal() -> int | None:
    """The terminal's file descriptor, if it is ours to give."""
    try:
        descriptor = sys.stdin.fileno()
        return descriptor if os.tcgetpgrp(descriptor) == os.getpgrp() else None
    except (OSError, ValueError, AttributeError):
        return None


_LIBC = ctypes.CDLL(None, use_errno=True)


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
