"""Combinations of a program that is launched: its command runs on the CPU until its step is known.

    python train.py config.yml --batch={batch}     {batch} also in config.yml, which is copied
      └ with as many CPU devices as the machine has GPUs ─► the step's StableHLO ─► compiled for it

Large programs are not run (run/lowered_job.py), so the model may be larger than this machine.
"""

from __future__ import annotations

import os
import re
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from slipstream.compiler.closing import Closing
from slipstream.compiler.compilation import Compilation
from slipstream.compiler.compile import known_config
from slipstream.compiler.failures import CompileFailed, keep_log
from slipstream.compiler.inspection import Inspection
from slipstream.compiler.memory_pool import PLAN_SHARE, pool_share
from slipstream.compiler.session import CompilerSession, Costs
from slipstream.compiler.source_tracking import TargetInputs
from slipstream.compiler.targets import Target
from slipstream.compiler.workers import Workers
from slipstream.errors import BadInput
from slipstream.flags.catalogue.catalogue import installed_catalogue
from slipstream.machines.machine import Machine
from slipstream.plan.space.parameters import Parameter
from slipstream.run.context import SIGNALLED, agent_problem, how_far, signal_name
from slipstream.run.launcher import CantStart, Job, stop_all
from slipstream.run.lowered_job import (
    failure,
    is_over,
    lowered_program,
    lowering_environment,
    why_nothing,
)

MOST_CONFIG_BYTES = 1_000_000
"""larger files of a command are data, not configuration"""
FOLDER = "folder"
"""the place of a folder that a combination may write to, and that is removed"""
PATIENCE_S = 2.0
"""between asking a job to end and killing it"""
_PLACE = re.compile(r"(?:[\w./-]+=)?\{([A-Za-z_]\w*)\}")
"""a word that is nothing but a place: `--batch={batch}`; braces elsewhere may be code or JSON"""
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
    for word in command:
        place = _PLACE.fullmatch(word)
        if place is not None and place[1] not in (*names, FOLDER):
            raise BadInput(
                f"{word}: no --vary gives {place[1]} a value; add its values: "
                f"--vary {place[1]}=VALUE,…"
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
            program_only=True,
        ) as session:
            return session.compile(costs=costs)

    def portable_target(self, keywords: Mapping[str, Any]) -> Target:
        """The program of the job's step; CompilerFailed if the job has none."""
        self._is_aborted.clear()
        with tempfile.TemporaryDirectory(prefix="slipstream-plan-") as made:
            folder = Path(made)
            command = job_command(self._command, keywords, folder)
            found = self._lowered(command, folder)
            return Target(
                "stablehlo",
                "the step of the job",
                Path(found["stablehlo"]).read_bytes(),
                devices=tuple(found["order"]),
                options=_own_flags(found["flags"]),
                memory_share=pool_share(os.environ, PLAN_SHARE),
            )

    def _lowered(self, command: Sequence[str], folder: Path) -> dict[str, Any]:
        log, environment = (
            folder / "log.txt",
            lowering_environment(os.environ, folder, self._machine),
        )
        with log.open("wb") as out:
            try:
                job = Job(command, environment, out, out, ends_with_us=True)
            except CantStart as error:
                raise CompileFailed(str(error), "invalid") from None
            try:
                code = job.wait(lambda: is_over(folder) or self._is_aborted.is_set())
            finally:
                stop_all([job], PATIENCE_S)
        if code is None and self._is_aborted.is_set():
            raise CompileFailed("the job was aborted", "aborted", _so_far(log))
        found = lowered_program(folder, code)
        why = _unusable(found, self._machine) if found else _why_nothing(command, folder, code)
        if found is None or why:
            text = log.read_text(errors="replace")
            raise CompileFailed(f"{why} (log: {keep_log(text)})", "invalid", why)
        return found

    def abort(self) -> None:
        self._is_aborted.set()
        self._workers.abort()

    def close(self) -> None:
        self._workers.close()


def job_command(
    command: Sequence[str], keywords: Mapping[str, Any], folder: Path
) -> tuple[str, ...]:
    """The command of a combination, whose files are in the folder as long as it runs."""
    (folder / FOLDER).mkdir()
    return filled(command, {FOLDER: folder / FOLDER, **keywords}, folder)


def filled(command: Sequence[str], values: Mapping[str, Any], folder: Path) -> tuple[str, ...]:
    """The command with its values; configuration files with places become filled copies."""
    words = list(command)
    for number, file in enumerate(_files(command)):
        text = file.read_text(errors="replace")
        if (made := _fill(text, values)) != text:
            copy = _beside_the_others(file, folder / f"config{number}")
            copy.write_text(made)
            words = [word.replace(str(file), str(copy)) for word in words]
    return tuple(_fill(word, values) for word in words)


def _beside_the_others(file: Path, folder: Path) -> Path:
    """A place with the same name, in a folder with the same other files: files name each other."""
    folder.mkdir()
    for other in file.absolute().parent.iterdir():
        if other.name != file.name:
            (folder / other.name).symlink_to(other)
    return folder / file.name


def _fill(text: str, values: Mapping[str, Any]) -> str:
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


def _own_flags(flags: Mapping[str, str]) -> dict[str, str]:
    """XLA's flags that the job sets itself; those of the environment reach the compiler anyway."""
    words = os.environ.get("XLA_FLAGS", "").split()
    return {
        name: value
        for name, value in flags.items()
        if name.startswith("xla_gpu_") and f"--{name}={value}" not in words
    }


def _unusable(found: Mapping[str, Any], machine: Machine) -> str:
    """Why the program is not the step that would run on the machine; empty if it is."""
    here = installed_catalogue().jaxlib_version
    if found["jaxlib"] != here:
        return (
            f"the job has jaxlib {found['jaxlib']}, but Slipstream {here}: another XLA would "
            "compile it; install Slipstream where the job's Python is, and run it from there"
        )
    if len(found["order"]) != machine.devices:
        return (
            f"{found['program']} runs on {len(found['order'])} of {machine.devices} devices; "
            "expected a mesh of all of jax.devices()"
        )
    return ""


def _why_nothing(command: Sequence[str], folder: Path, code: int | None) -> str:
    if problem := agent_problem(folder) or failure(folder):
        return problem
    if not code:
        return why_nothing(folder) or how_far(folder, command)
    how = f"{signal_name(code)} ended it" if code > SIGNALLED else f"exit code {code}"
    return f"the job failed before its step was known ({how}): {_error(folder / 'log.txt')}"


def _so_far(log: Path) -> str:
    return (
        f"the job had not run its step by then, and last said: {_last(log)}; if it starts slowly, "
        "give it more: --timeout 20m"
    )


def _error(log: Path) -> str:
    """The last line of the log that looks like an error, or its last line."""
    errors = [line for line in _lines(log) if _ERROR.match(line)]
    return errors[-1][:200] if errors else _last(log)


def _last(log: Path) -> str:
    return (_lines(log) or ["nothing"])[-1][:200]


def _lines(log: Path) -> list[str]:
    text = log.read_text(errors="replace")
    return [line.strip() for line in text.splitlines() if line.strip()]
