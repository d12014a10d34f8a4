"""Where mpirun or srun started us in the job's place, ending us is meant to end the job.

    mpirun ──SIGTERM──► slipstream run ──SIGTERM──► the job, which takes it for a notice
    mpirun ──SIGKILL──► slipstream run              the job would go on for ever
                              ╰─ its end of a pipe ─► guard ──SIGKILL──► the job's process group

SIGKILL can't be passed on by whom it hits. So a small process outside of our group waits for our
end, however it comes.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress

# A line says that all is well; the pipe's end without one, that we are gone.
_SCRIPT = 'read -r line || kill -s KILL -- "-$1"'


@contextmanager
def watchdog(group: int) -> Iterator[None]:
    """While the block runs, this process group doesn't outlive us."""
    guard = _start(group)
    try:
        yield
    finally:
        if guard is not None:
            with suppress(OSError):
                guard.communicate(b"over\n")


def _start(group: int) -> subprocess.Popen[bytes] | None:
    """None where there is no room for one more process: the job is what counts."""
    try:
        # Outputs that it held open would keep a launcher waiting for their end.
        return subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT, "sh", str(group)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return None
