"""Jobs as people write them, and what `slipstream run` makes of them, in real processes.

Nothing here goes by the clock: a job trains until it is told to end, and whoever wants to meet it
in some state waits for a file that says so.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from slipstream.run.run_dir import done_facts, mark_done, read_json, write_json

LONGEST_S = 300.0
"""after which a run is taken to hang"""
OTHER = ("--flags", "--xla_disable_hlo_passes=cpu-parallel-task-assigner")
"""options that give a CPU something to compare: of the variants that are always tried, it makes the
same program. This flag changes how loops are divided among threads, and no bit of a result."""

STEP = """
import hashlib
import jax, jax.numpy as jnp, numpy as np

def f(w, x):
    for _ in range(3):
        x = jnp.tanh(x @ w)
    return jnp.roll(0.99 * w, 1, 0) + 1e-3 * jnp.cos(x), x.sum()

step = jax.jit(f, donate_argnums=0)
# From numpy: what jax.numpy would compile for them takes as long as half the job.
x = jnp.asarray(np.eye(SIZE, dtype=np.float32))
w = jnp.asarray(np.linspace(-0.1, 0.1, SIZE * SIZE, dtype=np.float32).reshape(SIZE, SIZE))

def line(loss, w):
    return f"{float(loss)!r} {hashlib.sha256(np.asarray(w).tobytes()).hexdigest()[:16]}"
"""
"""what comes out of it tells how often it ran: a step that is lost or done twice shows"""

TRAIN = f"""
import os, sys, time
{STEP}
number, steps = 0, int(sys.argv[1])
goes_on, end = os.environ.get("JOB_GOES_ON", "/none"), time.monotonic() + {LONGEST_S}
while number < steps or (os.path.exists(goes_on) and time.monotonic() < end):
    w, loss = step(w, x)
    number += 1
    if number == 1:
        print("step", number, line(loss, w), flush=True)
print("end", number, line(loss, w))
"""
"""makes so many steps, and goes on while a file is there"""


def train(folder: Path, size: int = 64, name: str = "train.py") -> Path:
    file = folder / name
    file.write_text(TRAIN.replace("SIZE", str(size)))
    return file


@functools.cache
def _step(size: int) -> dict:
    names: dict = {}
    exec(STEP.replace("SIZE", str(size)), names)
    return names


@functools.cache
def after(number: int, size: int = 64) -> str:
    """What a job prints that ran this step so often, computed here and now."""
    names = _step(size)
    # A copy: the step makes its own weights of those that it is given.
    w, first = names["jnp"].array(names["w"]), ""
    for _ in range(number):
        w, loss = names["step"](w, names["x"])
        first = first or f"step 1 {names['line'](loss, w)}\n"
    return f"{first}end {number} {names['line'](loss, w)}\n"


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str
    folder: Path

    @property
    def receipt(self) -> dict:
        return json.loads((self.folder / "receipt.json").read_text())

    @property
    def phases(self) -> list[str]:
        """The lines that tell of phases, in order."""
        known = ("1 check", "2 profile", "3 costs", "4 compile", "5 compare", "verdict")
        return [k for line in self.err.splitlines() for k in known if line.startswith(k)]

    @property
    def steps(self) -> int:
        """How many the job made."""
        return int(self.out.rpartition("end ")[2].split()[0])

    def is_as_without_us(self, size: int = 64) -> bool:
        """Whether the job ended well, with the loss and weights that so many steps give."""
        return self.code == 0 and self.has_right_output(size)

    def has_right_output(self, size: int = 64) -> bool:
        return self.out == after(self.steps, size)


def environment(**more: str) -> dict[str, str]:
    ours = ("SLIPSTREAM", "XLA_FLAGS", "SLURM_", "OMPI_", "PMI", "JOB_", "JAX_PROCESS_", "JAX_NUM_")
    plain = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    return {**plain, "JAX_PLATFORMS": "cpu", **more}


def command(folder: Path, job: Sequence[str], *options: str) -> list[str]:
    slipstream = [sys.executable, "-m", "slipstream", "run", "--out", str(folder)]
    return [*slipstream, *options, "--", *map(str, job)]


def plain(job: Sequence[str], cwd: Path, **more: str) -> Done:
    """The job without us."""
    words = [str(word) for word in job]
    env = environment(**more)
    done = subprocess.run(
        words, cwd=cwd, env=env, capture_output=True, text=True, timeout=LONGEST_S
    )
    return Done(_shell_code(done.returncode), done.stdout, done.stderr, cwd)


def run(folder: Path, job: Sequence[str], *options: str, cwd: Path, **more: str) -> Done:
    """The job with us; one that goes on does so until the comparison is over, or has failed."""
    started = Started(folder, job, *options, cwd=cwd, **more)
    started.let_end_when(started.is_settled)
    return started.wait()


def run_short(folder: Path, job: Sequence[str], *options: str, cwd: Path, **more: str) -> Done:
    """The job with us, which ends by itself whatever became of the comparison."""
    started = Started(folder, job, *options, cwd=cwd, **more)
    started.let_end()
    return started.wait()


def start(words: Sequence[str], cwd: Path, env: Mapping, out: IO, err: IO) -> subprocess.Popen:
    """In a session of its own, where Ctrl-C counts: a shell's background jobs ignore it."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        return subprocess.Popen(
            words, cwd=cwd, env=env, stdout=out, stderr=err, start_new_session=True
        )
    finally:
        signal.signal(signal.SIGINT, before)


def wait_until(
    look: Callable[[], bool],
    code: Callable[[], int | None] = lambda: None,
    said: Callable[[], str] = str,
) -> None:
    """Until it is so; not if the process that would make it so has ended."""
    end = time.monotonic() + LONGEST_S
    while not look():
        assert code() is None or look(), f"it ended before: {said()}"
        assert time.monotonic() < end, f"waited in vain: {said()}"
        time.sleep(0.01)


def _shell_code(code: int) -> int:
    return code if code >= 0 else 128 - code


def conclude(folder: Path, chosen: str) -> None:
    """Make it that of a run that came to a verdict: on a busy CPU they seldom do."""
    phase = folder / "compare" / "rank0"
    found = {"verdict": "faster", "chosen": chosen}
    facts = done_facts(phase) | found
    for file in (folder / "receipt.json", phase / "comparison.json"):
        write_json(file, read_json(file) | found)
    facts["functions"] = [one | {"chosen": chosen} for one in facts["functions"]]
    mark_done(phase, [phase / "comparison.json"], facts)


_NUMBERS = itertools.count()
OVER = ("settled", "applied", "failed", "nothing to measure")


def _end(process: subprocess.Popen) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class Started:
    """A run under way, to be disturbed."""

    def __init__(self, folder: Path, job: Sequence[str], *options: str, cwd: Path, **more: str):
        self.folder = folder
        own = f"{folder.name}-{next(_NUMBERS)}"
        self._goes_on = cwd / f"{own}.goes-on"
        self._goes_on.touch()
        self._status = folder / "compare" / "rank0" / "status.json"
        self._before = _stamp(self._status)
        self._out, self._err = cwd / f"{own}.out", cwd / f"{own}.err"
        with self._out.open("w") as out, self._err.open("w") as err:
            env = environment(JOB_GOES_ON=str(self._goes_on), **more)
            self.process = start(command(folder, job, *options), cwd, env, out, err)
        # A test that fails leaves its run behind: it must not disturb the tests after it.
        weakref.finalize(self, _end, self.process)

    def status(self, phase: str) -> Mapping:
        """What the agent said last; nothing of an earlier run."""
        file = self.folder / phase / "rank0" / "status.json"
        if file == self._status and _stamp(file) == self._before:
            return {}
        try:
            return json.loads(file.read_text())
        except (OSError, ValueError):
            return {}

    def is_settled(self) -> bool:
        return self.status("compare").get("state") in OVER

    def wait_for(self, phase: str, *states: str) -> Mapping:
        """Until the agent says that it is so far."""
        self.wait_until(lambda: self.status(phase).get("state") in states)
        return self.status(phase)

    def wait_until(self, look: Callable[[], bool]) -> None:
        wait_until(look, self.process.poll, lambda: self.said)

    @property
    def said(self) -> str:
        logs = sorted(self.folder.rglob("agent.log"))
        return "\n".join(file.read_text() for file in (self._err, self._out, *logs))

    def send(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def let_end(self) -> None:
        """The job ends by itself from here on."""
        self._goes_on.unlink(missing_ok=True)

    def let_end_when(self, look: Callable[[], bool]) -> None:
        """The same, once it is so far; a run may end before."""
        wait_until(lambda: look() or self.process.poll() is not None, said=lambda: self.said)
        self.let_end()

    def end_all(self) -> None:
        """Nothing of it lives on after a test."""
        self.let_end()
        pids = [self.status(phase).get("process") for phase in ("profile", "compare")]
        for pid in (self.process.pid, *filter(None, pids)):
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)

    def wait(self) -> Done:
        try:
            code = _shell_code(self.process.wait(LONGEST_S))
        except subprocess.TimeoutExpired:
            self.end_all()
            raise AssertionError(f"it does not end: {self.said}") from None
        return Done(code, self._out.read_text(), self._err.read_text(), self.folder)


def _stamp(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def is_alive(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] != "Z"


def wait_while_alive(pid: int) -> None:
    wait_until(lambda: not is_alive(pid))
