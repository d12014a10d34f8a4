"""Worker processes that stay for many targets, one for each value of XLA_FLAGS."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slipstream.compiler.closing import Closing
from slipstream.compiler.failures import explain
from slipstream.compiler.source_tracking import TargetInputs
from slipstream.compiler.targets import Target
from slipstream.compiler.worker.process import WorkerFailed, WorkerProcess
from slipstream.machines.machine import Machine

Progress = Callable[[str], None]
Answered = tuple[dict[str, Any], str]
"""the answer, and what was logged meanwhile"""


@dataclass(frozen=True)
class Job:
    """What a request is about."""

    target: Target
    machine: Machine
    target_config: str
    xla_flags: str = ""


@dataclass
class _Worker:
    """A worker, and what it has seen of the world, which may change while it runs."""

    process: WorkerProcess
    topology: tuple[str, str] = ("", "")
    """the one that it has built last, and the target configuration"""
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    inputs: TargetInputs = field(default_factory=TargetInputs)
    files: Mapping[str, Any] = field(default_factory=dict)
    """contents of what it has read"""
    is_changed: bool = False
    """whether a build function has changed settings of the process"""

    def note(self, answer: Mapping[str, Any]) -> None:
        self.inputs = TargetInputs.from_json(answer["inputs"])
        self.files = self.inputs.state()["files"]
        self.is_changed = answer["is_changed"]

    @property
    def is_stale(self) -> bool:
        """Whether a new process would see something else."""
        return (
            self.is_changed
            or self.environment != dict(os.environ)
            or self.files != self.inputs.state()["files"]
        )


class Workers(Closing):
    """Starts workers when they are needed, and again when they have died or are out of date."""

    def __init__(self, *, use_gpu: bool = False, progress: Progress | None = None) -> None:
        self._use_gpu = use_gpu
        self._progress = progress or (lambda text: None)
        self._folder = tempfile.TemporaryDirectory(prefix="slipstream-workers-")
        self._workers: dict[str, _Worker] = {}

    @property
    def kernels(self) -> Path:
        """A file of machine code that all compiles may share."""
        return Path(self._folder.name) / "kernels"

    @property
    def tools(self) -> Path:
        """A folder for tools that XLA starts."""
        return Path(self._folder.name) / "cuda"

    def ask(self, job: Job, do: str, **request: Any) -> Answered:
        """The answer to a request; an explained error if it fails."""
        worker = self._worker(job.xla_flags)
        topology = job.machine.topology, job.target_config
        if worker.topology != topology:
            names = ("topology", "target_config")
            start = dict(zip(names, topology, strict=True))
            self._ask(job, "start", {**start, "use_gpu": self._use_gpu})
            worker.topology = topology
        return self._ask(job, do, request)

    def ask_python(self, job: Job, do: str, **request: Any) -> Answered:
        """The same, if the target's function is called for it."""
        worker = self._workers.get(job.xla_flags)
        if worker is not None and worker.is_stale:
            self._end(job.xla_flags)
        target = job.target
        answer, log = self.ask(
            job,
            do,
            module=target.module,
            function=target.function,
            keywords=dict(target.keywords),
            **request,
        )
        self._workers[job.xla_flags].note(answer)
        return answer, log

    def _worker(self, xla_flags: str) -> _Worker:
        if xla_flags in self._workers and not self._workers[xla_flags].process.is_alive:
            self._end(xla_flags)
        if xla_flags not in self._workers:
            self._progress("starting XLA")
            self._workers[xla_flags] = _Worker(WorkerProcess(xla_flags, use_gpu=self._use_gpu))
        return self._workers[xla_flags]

    def _ask(self, job: Job, do: str, request: Mapping[str, Any]) -> Answered:
        try:
            return self._workers[job.xla_flags].process.ask(do, **request)
        except WorkerFailed as failed:
            if failed.died:
                self._end(job.xla_flags)
            raise explain(failed, do, job.target, job.machine) from None

    def _end(self, xla_flags: str) -> None:
        self._workers.pop(xla_flags).process.close()

    def abort(self) -> None:
        """Kill all workers; a thread that waits for one gets an error."""
        for worker in list(self._workers.values()):
            worker.process.kill()

    def close(self) -> None:
        for xla_flags in list(self._workers):
            self._end(xla_flags)
        self._folder.cleanup()
