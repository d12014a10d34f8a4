"""MLflow: metrics and tags of the job's active run, and the receipt among its artifacts."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slipstream.run.trackers.tracked import PREFIX, Tracked

_LONGEST_TAG = 5000


@dataclass(frozen=True)
class Mlflow:
    """A run that the job has started, and the store that it is in."""

    run_id: str
    uri: str

    @property
    def text(self) -> str:
        return f"MLflow run {self.run_id}"

    def log(self, tracked: Tracked) -> None:
        mlflow: Any = sys.modules["mlflow"]
        entities: Any = sys.modules["mlflow.entities"]
        client = mlflow.MlflowClient(tracking_uri=self.uri)
        now_ms = int(time.time() * 1000)
        metrics = [entities.Metric(name, v, now_ms, 0) for name, v in tracked.metrics.items()]
        tags = [
            entities.RunTag(f"{PREFIX}.{name}", text[:_LONGEST_TAG])
            for name, text in tracked.texts.items()
        ]
        client.log_batch(self.run_id, metrics=metrics, tags=tags)
        for file in tracked.files:
            client.log_artifact(self.run_id, str(file), PREFIX)

    def log_report(self, page: Path) -> None:
        client = sys.modules["mlflow"].MlflowClient(tracking_uri=self.uri)
        client.log_artifact(self.run_id, str(page), PREFIX)


def run_of_this_thread() -> Mlflow | None:
    """The active run, if the job has imported mlflow and started one; each thread has its own."""
    mlflow: Any = sys.modules.get("mlflow")
    active = getattr(mlflow, "active_run", None)
    run = active() if active is not None else None
    return Mlflow(run.info.run_id, mlflow.get_tracking_uri()) if run is not None else None
