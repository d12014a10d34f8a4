"""Combinations of a program that is launched: its command runs on the CPU until its step is known.

    python train.py config.yml --batch={batch}     {batch} also in config.yml, which is copied
      └ with as many CPU devices as the machine has GPUs ─► the step's StableHLO ─► compiled for it

The job's model is really initialised, so it has to fit in this machine's memory.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from slipstream.compiler.closing import Closing
from slipstream.compiler.compilation import Compilation
from slipstream.compiler.compile import known_config
from slipstream.compiler.failures import CompileFailed
from slipstream.compiler.inspection import Inspection
from slipstream.compiler.session import CompilerSession, Costs
from slipstream.compiler.source_tracking import TargetInputs
from slipstream.compiler.targets import Target
from slipstream.compiler.workers import Workers
from slipstream.errors import BadInput
from slipstream.machines.machine import Machine
from slipstream.plan.space.parameters import Parameter, Value
from slipstream.run.agent.request import LOWER, Request
from slipstream.run.launcher import job_environment
from slipstream.run.run_dir import DONE, REQUEST, done_facts, read_json
from slipstream.run.simulated import CALLS, DEVICES

MOST_CONFIG_BYTES = 1_000_000
"""larger files of a command are data, not configuration"""
PATIENCE_S = 10.0
"""between asking a job to end and killing it"""
POLL_S = 0.05
_ERROR = re.compile(r"[\w.]*(?:Error|Exception|Exit)\b.*:")


def command_parameters(command: Sequence[str], vary: Sequence[str]) -> tuple[Parameter, ...]:
    """The names of `--vary` as parameters; BadInput if the command has no place for one."""
    names = [text.partition("=")[0].strip() for text in vary]
    if not names:
        raise BadInput(
            "nothing may vary in the command; give values to places in it: --vary batch=1,2,4 -- "
            "python train.py --batch={batch}"
        )
    texts = [*command, *(file.read_text(errors="replace") for file in _files(command))]
    for name in names:
        if not any(f"{{{name}}}" in text for text in texts):
            raise BadInput(
                f"--vary {name}: neither the command nor a configuration file that it names has "
                f"{{{name}}}; write it where the value belongs: --batch={{{name}}}"
            )
    return tuple(Parameter(name, "any") for name in names)


class JobSession(Closing):
    """A launched program with any values in its places; the counterpart of `Combinations`."""

    def __init__(self, command: Sequence[str], machine: Machine) -> None:
        self._command = tuple(command)
        self._machine = machine
        self._workers = Workers()
        self._is_aborted = threading.Event()
        self.inputs = TargetInputs(tuple(str(file.absolute()) for file in _files(command)))

    def inspect(self, keywords: Mapping[str, Any], *, traces: bool = True) -> Inspection:
        """Nothing is known before the job runs."""
        return Inspection(self._machine.devices, arguments_bytes=0, is_traced=False)

    def compile(self, keywords: Mapping[str, Any], *, costs: Costs = None) -> Compilation:
        with CompilerSession(
            self.portable_target(keywords),
            self._machine,
            known_config(self._machine),
            workers=self._workers,
            shares_kernels=True,
        ) as session:
            return session.compile(costs=costs)

    def portable_target(self, keywords: Mapping[str, Any]) -> Target:
        """The program of the job's step; CompilerFailed if the job has none."""
        self._is_aborted.clear()
        with tempfile.TemporaryDirectory(prefix="slipstream-plan-") as made:
            folder = Path(made)
            command = filled(self._command, keywords, folder)
            return Target("stablehlo", " ".join(command), self._lowered(command, folder))

    def _lowered(self, command: Sequence[str], folder: Path) -> bytes:
        request = Request(LOWER, str(folder), CALLS, launcher=os.getpid()).write(folder / REQUEST)
        environment = job_environment(os.environ, request, {"JAX_PLATFORMS": "cpu"})
        flags = environment.get("XLA_FLAGS", "")
        environment["XLA_FLAGS"] = f"{flags} --{DEVICES}={self._machine.devices}".strip()
        with (folder / "log.txt").open("wb") as log:
            try:
                job = subprocess.Popen(
                    command,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            except OSError as error:
                text = f"{command[0]} can't be started ({error.strerror})"
                raise CompileFailed(text, "invalid") from None
            try:
                while job.poll() is None and not (folder / DONE).exists():
                    if self._is_aborted.is_set():
                        raise CompileFailed("the job was aborted", "aborted")
                    time.sleep(POLL_S)
            finally:
                _end(job)
        found = done_facts(folder)
        if found is None and job.returncode == 0:
            # The job is over, and no program ran often enough; take the largest.
            found = read_json(folder / "candidate.json")
        if found is None:
            raise CompileFailed(_why(job.returncode, folder / "log.txt"), "invalid")
        return Path(found["stablehlo"]).read_bytes()

    def abort(self) -> None:
        self._is_aborted.set()
        self._workers.abort()

    def close(self) -> None:
        self._workers.close()


def filled(command: Sequence[str], values: Mapping[str, Value], folder: Path) -> tuple[str, ...]:
    """The command with its values; configuration files with places become filled copies."""
    words = list(command)
    for file in _files(command):
        text = file.read_text(errors="replace")
        if (made := _fill(text, values)) != text:
            copy = folder / file.name
            copy.write_text(made)
            words = [word.replace(str(file), str(copy)) for word in words]
    return tuple(_fill(word, values) for word in words)


def _fill(text: str, values: Mapping[str, Value]) -> str:
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", str(value))
    return text


def _files(command: Sequence[str]) -> list[Path]:
    """The files that a command names and that may be its configuration."""
    found = []
    for word in command[1:]:
        file = Path(word.rpartition("=")[2])
        with suppress(OSError, ValueError):
            if file.is_file() and file.suffix != ".py" and file.stat().st_size < MOST_CONFIG_BYTES:
                found.append(file)
    return found


def _end(job: subprocess.Popen[bytes]) -> None:
    """End a job and all that it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(job.pid, number)
        with suppress(subprocess.TimeoutExpired):
            job.wait(PATIENCE_S)


def _why(code: int | None, log: Path) -> str:
    """The last line of the log that looks like an error, or its last line."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if _ERROR.match(line)]
    last = (errors or lines or ["it printed nothing"])[-1][:200]
    return f"the job ended with exit code {code} before its step was known: {last}"
