"""Weights & Biases: the summary of the job's run, and artifacts with the receipt and the report.

The summary, and not `run.log`: that would count as one of the job's own steps.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slipstream.run.trackers.tracked import PREFIX, Tracked


@dataclass(frozen=True)
class Wandb:
    """The run that the job has started."""

    run: Any

    @property
    def text(self) -> str:
        return f"Weights & Biases run {self.run.id}"

    def log(self, tracked: Tracked) -> None:
        texts = {f"{PREFIX}/{name}": text for name, text in tracked.texts.items()}
        self.run.summary.update({**tracked.metrics, **texts})
        self._log_files(f"{PREFIX}-{self.run.id}", tracked.files)

    def log_report(self, page: Path) -> None:
        self._log_files(f"{PREFIX}-report-{self.run.id}", (page,))

    def _log_files(self, name: str, files: Sequence[Path]) -> None:
        artifact = sys.modules["wandb"].Artifact(name, type=PREFIX)
        for file in files:
            artifact.add_file(str(file))
        self.run.log_artifact(artifact)


def run_of_this_process() -> Wandb | None:
    """The active run, if the job has imported wandb and started one."""
    run = getattr(sys.modules.get("wandb"), "run", None)
    return Wandb(run) if run is not None else None
