"""Jobs as people write them, and what `slipstream run` makes of them, in real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TRAIN = """
import os, sys, time
import jax, jax.numpy as jnp

def f(w, x):
    for _ in range(3):
        x = jnp.tanh(x @ w)
    return w + 1e-9 * jnp.mean(x), x.sum()

step = jax.jit(f, donate_argnums=0)
w, x = jnp.full((SIZE, SIZE), 0.001), jnp.ones((SIZE, SIZE))
number, steps = 0, int(sys.argv[1])
while_there, until_there = os.environ.get("JOB_GOES_ON"), os.environ.get("JOB_UNTIL")
end = time.monotonic() + 60

def goes_on():
    if while_there:
        return os.path.exists(while_there)
    return until_there and not os.path.exists(until_there) and time.monotonic() < end

while number < steps or goes_on():
    w, loss = step(w, x)
    number += 1
    if number in (1, steps):
        print("step", number, float(loss), float(w.sum()), flush=True)
print("end")
"""
"""goes on while one file is there, or until another is, so that it can be met in any state"""


def train(folder: Path, size: int = 64, name: str = "train.py") -> Path:
    file = folder / name
    file.write_text(TRAIN.replace("SIZE", str(size)))
    return file


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


def environment(**more: str) -> dict[str, str]:
    ours = ("SLIPSTREAM", "XLA_FLAGS", "SLURM_", "OMPI_", "PMI_")
    plain = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    return {**plain, "JAX_PLATFORMS": "cpu", **more}


def command(folder: Path, job: Sequence[str], *options: str) -> list[str]:
    slipstream = [sys.executable, "-m", "slipstream", "run", "--out", str(folder)]
    return [*slipstream, *options, "--", *map(str, job)]


def plain(job: Sequence[str], cwd: Path, **more: str) -> Done:
    """The job without us."""
    return _done([str(word) for word in job], cwd, cwd, more)


def run(folder: Path, job: Sequence[str], *options: str, cwd: Path, **more: str) -> Done:
    """The job with us; one that goes on does so until the comparison is over."""
    more.setdefault("JOB_UNTIL", str(folder / "compare" / "rank0" / "done.json"))
    return _done(command(folder, job, *options), folder, cwd, more)


def _done(words: Sequence[str], folder: Path, cwd: Path, more: dict[str, str]) -> Done:
    done = subprocess.run(
        words, cwd=cwd, env=environment(**more), capture_output=True, text=True, timeout=180
    )
    return Done(_shell_code(done.returncode), done.stdout, done.stderr, folder)


def _shell_code(code: int) -> int:
    return code if code >= 0 else 128 - code


class Started:
    """A run under way, to be disturbed."""

    def __init__(self, folder: Path, job: Sequence[str], *options: str, cwd: Path, **more: str):
        self.folder = folder
        self._goes_on = cwd / f"goes-on-{folder.name}"
        self._goes_on.touch()
        self._out, self._err = cwd / f"{folder.name}.out", cwd / f"{folder.name}.err"
        with self._out.open("w") as out, self._err.open("w") as err:
            self.process = subprocess.Popen(
                command(folder, job, *options),
                cwd=cwd, env=environment(JOB_GOES_ON=str(self._goes_on), **more),
                stdout=out, stderr=err, start_new_session=True,
                # A shell's background jobs ignore Ctrl-C; these must not.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )  # fmt: skip

    def wait_for(self, phase: str, *states: str) -> dict:
        """Until the agent says that it is so far."""
        status = self.folder / phase / "rank0" / "status.json"
        return self.wait_until(lambda: _if_in(status, states))

    def wait_until(self, look):
        end = time.monotonic() + 90
        while time.monotonic() < end:
            if found := look():
                return found
            assert self.process.poll() is None, self.said
            time.sleep(0.005)
        raise AssertionError(f"waited in vain: {self.said}")

    @property
    def said(self) -> str:
        return self._err.read_text() + self._out.read_text()

    def send(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def let_end(self) -> None:
        """The job ends by itself from here on."""
        self._goes_on.unlink(missing_ok=True)

    def wait(self) -> Done:
        code = _shell_code(self.process.wait(120))
        return Done(code, self._out.read_text(), self._err.read_text(), self.folder)


def _if_in(status: Path, states: Sequence[str]) -> dict | None:
    try:
        found = json.loads(status.read_text())
    except (OSError, ValueError):
        return None
    return found if found["state"] in states else None


def is_alive(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] != "Z"
