"""One build function compiled with many sets of keyword arguments, in one worker process.

with combinations("train.py:build", on="8xH200") as session:
    for keywords in candidates:
        if fits(session.inspect(keywords)):
            session.compile(keywords)

Its machine code is not assembled, since only its schedule and its memory are looked at.
A combination has the same place in the cache as `compilation("train.py:build", keywords)` for the
same share of memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from slipstream.compiler.closing import Closing
from slipstream.compiler.compilation import Compilation
from slipstream.compiler.compile import known_config, machine_of
from slipstream.compiler.inspection import Inspection
from slipstream.compiler.options import Flags
from slipstream.compiler.session import CompilerSession, Costs
from slipstream.compiler.source_tracking import TargetInputs
from slipstream.compiler.targets import Target, identify
from slipstream.compiler.worker.keywords import as_json
from slipstream.compiler.workers import Job, Progress, Workers
from slipstream.errors import BadInput
from slipstream.machines.machine import Machine

Keywords = Mapping[str, Any]


def combinations(
    target: str | Target,
    on: str | Machine,
    *,
    target_config: str | None = None,
    progress: Progress | None = None,
    workers: Workers | None = None,
) -> Combinations:
    """A session for many combinations; use it in a `with` statement.

    `workers` are processes to share with sessions for other machines; they stay open.
    """
    found = identify(target)
    if found.kind != "python":
        raise BadInput(
            f"{found.label} is a program, and nothing in it can vary; expected FILE.py:FUNCTION"
        )
    machine = machine_of(on)
    config = target_config if target_config is not None else known_config(machine)
    return Combinations(
        found,
        machine,
        config,
        progress=progress,
        workers=workers,
    )


class Combinations(Closing):
    """Inspects and compiles a Python target on one machine, with any keyword arguments."""

    def __init__(
        self,
        target: Target,
        machine: Machine,
        target_config: str,
        *,
        progress: Progress | None = None,
        workers: Workers | None = None,
    ) -> None:
        self.target = target
        self.machine = machine
        self._config = target_config
        self._progress = progress
        self.inputs = TargetInputs()
        """what the target has read so far"""
        self._has_own_workers = workers is None
        self._workers = workers or Workers(progress=progress)

    def inspect(self, keywords: Keywords, *, traces: bool = True) -> Inspection:
        """What a combination needs at least, without compiling it.

        Without `traces`, only its arguments are known, which takes milliseconds.
        """
        job = Job(self._with(keywords), self.machine, self._config)
        domain = self.machine.link_domain
        answer, _ = self._workers.ask_python(job, "inspect", traces=traces, domain=domain)
        self.inputs = self.inputs.joined(TargetInputs.from_json(answer["inputs"]))
        return Inspection.from_json(answer)

    def compile(self, keywords: Keywords, flags: Flags = None, costs: Costs = None) -> Compilation:
        """The program of a combination, from the cache if possible."""
        with self._session(keywords) as session:
            return session.compile(flags, costs)

    def portable_target(self, keywords: Keywords) -> Target:
        """A combination lowered: it can be stored, and compiled where the user's code is not."""
        with self._session(keywords) as session:
            return session.portable_target()

    def abort(self) -> None:
        """Abort what another thread waits for, which then fails there; the next request works."""
        self._workers.abort()

    def close(self) -> None:
        if self._has_own_workers:
            self._workers.close()

    def _session(self, keywords: Keywords) -> CompilerSession:
        return CompilerSession(
            self._with(keywords),
            self.machine,
            self._config,
            progress=self._progress,
            program_only=True,
            workers=self._workers,
        )

    def _with(self, keywords: Keywords) -> Target:
        given = {name: as_json(value) for name, value in keywords.items()}
        return replace(self.target, keywords={**self.target.keywords, **given})
