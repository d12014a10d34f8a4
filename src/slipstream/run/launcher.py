"""The job as a child process: started unmodified, signalled as it would have been, never lost.

    terminal ──Ctrl-C──► the job's process group, which has the terminal
    kill ─────────────► slipstream run ──the same signal──► the job's process group

A profile run ends with us, whatever ends us. The job itself keeps its own input and output and
goes on without us, unless a launcher such as mpirun started us in its place.
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
from slipstream.run.guard import watchdog
from slipstream.run.signals import SignalForwarder

SITE = Path(__file__).parent / "site"
"""holds the sitecustomize.py that starts the agent"""
PATIENCE_S = 10.0
"""between asking a profile run to end and ending it"""
_POLL_S = 0.05
_PR_SET_PDEATHSIG = 1

Output = IO[Any] | int | None


def job_environment(
    base: Mapping[str, str], request: Path | None, more: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The environment of a job with an agent: the user's, and a way in for us."""
    environment = {**base, **(more or {})}
    if request is not None:
        paths = [str(SITE), *filter(None, base.get("PYTHONPATH", "").split(os.pathsep))]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
        environment[ENVIRONMENT] = str(request)
    return environment


class CantStart(BadInput):
    """The command of the job isn't one."""


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
    """The job, and until the block ends signals to us are its own: from before it is started.

    With `is_guarded` also the one that nobody can catch.
    """
    with SignalForwarder() as signals:
        job = Job(command, environment, stdout, stderr, ends_with_us=ends_with_us, signals=signals)
        signals.go_to(job.send)
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
        """what was sent to us for it"""
        self._terminal = _terminal()
        self._status: int | None = None
        try:
            # Between fork and exec only system calls: a group of its own, and its fate.
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
        """The exit code once it ended, as a shell has it: 128 and the signal that ended it."""
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

    def wait(self, look: Callable[[], bool] = lambda: False) -> int | None:
        """Until it ends, or `look` says that it was enough; its exit code, or None."""
        while (code := self.poll()) is None:
            if look():
                return None
            time.sleep(_POLL_S)
        return code

    def wait_at_most(self, seconds: float) -> int | None:
        """As `wait`, for so long."""
        end = time.monotonic() + seconds
        return self.wait(lambda: time.monotonic() > end)

    def send(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def stop(self) -> None:
        """End it and all that it started: asked first, then made."""
        self.send(signal.SIGTERM)
        self.wait_at_most(PATIENCE_S)
        self.send(signal.SIGKILL)
        self.wait()

    # The terminal.

    def _give_terminal(self, group: int) -> None:
        if self._terminal is None or self.ends_with_us:
            return
        # From the background this would stop us.
        before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        with suppress(OSError):
            os.tcsetpgrp(self._terminal, group)
        signal.signal(signal.SIGTTOU, before)

    def _pause(self) -> None:
        """Ctrl-Z stopped the job: stop too, and go on together."""
        if self._terminal is None:
            return
        self._give_terminal(os.getpgrp())
        os.kill(os.getpid(), signal.SIGSTOP)
        self._give_terminal(self.pid)
        self.send(signal.SIGCONT)


def stop_all(jobs: Sequence[Job], grace_s: float) -> None:
    """End jobs and all that they started: asked first, then made."""
    # Jobs that have lost one another complain at length: all are asked before any is waited for.
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


def _terminal() -> int | None:
    """The terminal's file descriptor, where it is ours to give."""
    try:
        descriptor = sys.stdin.fileno()
        return descriptor if os.tcgetpgrp(descriptor) == os.getpgrp() else None
    except (OSError, ValueError, AttributeError):
        return None


_LIBC = ctypes.CDLL(None, use_errno=True)


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
