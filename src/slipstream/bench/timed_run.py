"""A short run of a job: launch it, time some steps, stop it.

    command + variables ─► a fresh process group, with an agent inside ─► the time of a step
                             │ crash, hang, out of memory: TimedRunFailed, with the log

The job is the user's unchanged command, with or without a launcher; its output goes to a log. All
its ranks get the same request, and the first rank is timed.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slipstream.jaxhooks.jax_types import is_out_of_memory
from slipstream.run.agent.request import TIME, Request
from slipstream.run.context import SIGNALLED, agent_problem, how_far, signal_name
from slipstream.run.launcher import Job, job_environment, stop_all
from slipstream.run.rank import LAUNCHERS
from slipstream.run.run_dir import REQUEST, STATUS, done_facts, read_json
from slipstream.writing import open_private

HUNG, MEMORY, DIED = "hung", "memory", "died"
GRACE_S = 3.0
"""how long a timed run may take to end by itself"""
LAUNCHER_GRACE_S = 30.0
"""how long a launcher may take to stop its ranks: those of a killed mpirun would live on"""
LOG = "log.txt"
_KILLED = SIGNALLED + 9
_TAIL_BYTES = 1 << 16
_LAST_LINES = 60
_POLL_S = 0.05
_COUNTERS = Path("/proc/vmstat")


class TimedRunFailed(Exception):
    """A run without a step time: the kind of failure, and what was seen."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(why)
        self.kind = kind
        self.why = why


@dataclass(frozen=True)
class TimedRuns:
    """Runs one job repeatedly, and times its steps."""

    command: tuple[str, ...]
    start: int = 5
    """calls of the step before the clock starts"""
    steps: int = 10
    timeout_s: float = 600.0
    cwd: str | None = None
    base: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    def time(
        self,
        folder: Path,
        variables: Mapping[str, str],
        command: Sequence[str] | None = None,
        timeout_s: float | None = None,
    ) -> dict[str, Any]:
        """Run the job once; return what its agent wrote: `step_s`, `content` and more."""
        folder.mkdir(parents=True)
        names = tuple(dict.fromkeys([*variables, "XLA_FLAGS"]))
        request = Request(TIME, str(folder.absolute()), self.start, self.steps, variables=names)
        path = request.write(folder.absolute() / REQUEST)
        environment = job_environment(self.base, path, variables)
        kills = _kills()
        with open_private(folder / LOG) as log:
            words = command or self.command
            job = Job(words, environment, log, log, ends_with_us=True, cwd=self.cwd)
            try:
                code = self._await(job, words, folder, timeout_s or self.timeout_s)
            finally:
                stop_all([job], _grace_s(words))
        found = done_facts(folder)
        if found is None:
            raise _failure(folder, words, code, is_killed=_kills() > kills)
        return found

    def _await(
        self, job: Job, command: Sequence[str], folder: Path, timeout_s: float
    ) -> int | None:
        end = time.monotonic() + timeout_s
        while done_facts(folder) is None:
            code = job.poll()
            if code is not None:
                return code
            problem = agent_problem(folder)
            if problem is not None:
                raise TimedRunFailed(DIED, problem)
            if not (folder / REQUEST).exists():
                raise TimedRunFailed(
                    DIED, f"the time could not be written into {folder}; disk full?"
                )
            if time.monotonic() > end:
                is_seen = (folder / STATUS).exists()
                why = "" if is_seen else f": {how_far(folder, command)}"
                raise TimedRunFailed(
                    HUNG, f"no steps were timed in {timeout_s:g} s{why}; see {folder / LOG}"
                )
            time.sleep(_POLL_S)
        return None


def _grace_s(command: Sequence[str]) -> float:
    is_launcher = any(Path(word).name in LAUNCHERS for word in command)
    return LAUNCHER_GRACE_S if is_launcher else GRACE_S


def _failure(
    folder: Path, command: Sequence[str], code: int | None, is_killed: bool
) -> TimedRunFailed:
    """Why a job ended, from its log, its exit code and the kernel's count of OOM kills."""
    said = _last_lines(folder / LOG)
    ended = "ended with code 0 before its steps were timed"
    if code is not None and code > SIGNALLED:
        ended = f"was ended by {signal_name(code)}"
    elif code:
        ended = f"ended with code {code}"
    culprit = next((line for line in reversed(said) if is_out_of_memory(line, or_host=True)), None)
    place = f"see {folder / LOG}"
    if code and culprit is not None:
        return TimedRunFailed(MEMORY, f"the job {ended}: {culprit.strip()[:200]}; {place}")
    if code == _KILLED and is_killed:
        return TimedRunFailed(
            MEMORY, f"the job {ended} because the host ran out of memory; {place}"
        )
    status = read_json(folder / STATUS) or {}
    last = said[-1].strip()[:200] if said and code else ""
    # A job that fails says why; that nothing was timed follows from it.
    why = agent_problem(folder) or last or status.get("why") or how_far(folder, command)
    return TimedRunFailed(DIED, f"the job {ended}: {why}; {place}")


def _last_lines(file: Path) -> list[str]:
    with file.open("rb") as log:
        log.seek(max(file.stat().st_size - _TAIL_BYTES, 0))
        lines = log.read().decode("utf-8", "replace").splitlines()
    return [line for line in lines if line.strip()][-_LAST_LINES:]


def _kills() -> int:
    """OOM kills of this system since boot."""
    try:
        found = re.search(r"^oom_kill (\d+)$", _COUNTERS.read_text(), re.M)
    except OSError:
        return 0
    return int(found[1]) if found else 0
