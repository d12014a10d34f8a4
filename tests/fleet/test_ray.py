"""Recordings read on a real Ray cluster, one of whose workers is killed."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slipstream.errors import Missing
from slipstream.fleet import ray as on_ray
from slipstream.fleet.read import read_fleet
from slipstream.fleet.task import Refused, Task

REMOTE_DIGEST = on_ray._remote_digest


def dying(marker: str) -> Callable[..., Any]:
    """The task, killed the first time that it runs."""
    task = REMOTE_DIGEST()

    def remote_digest(wanted: str, given: Any) -> Any:
        try:
            os.mkdir(marker)
        except FileExistsError:
            return task(wanted, given)
        os.kill(os.getpid(), 9)

    return remote_digest


def test_a_killed_worker_loses_no_host(
    ray_nodes: dict[str, Any], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_ray, "_remote_digest", lambda: dying(str(tmp_path / "died")))
    said: list[str] = []
    found = read_fleet(folder, ray=ray_nodes["address"], notice=said.append)
    here = read_fleet(folder, jobs=1)
    assert len(said) == 1 and said[0].startswith("lost a worker (")
    assert (found.summary, found.hosts) == (here.summary, here.hosts)


def test_the_task_checks_the_nodes_slipstream(tmp_path: Path) -> None:
    task = on_ray._remote_digest()
    said = task("0.0.1", Task("x"))
    assert "not 0.0.1; install it there: " in said and "-m pip install slipstream==0.0.1" in said
    found = pickle.loads(task(on_ray._version(), Task(str(tmp_path / "none"))))
    assert isinstance(found, Refused) and "does not exist" in found.reason

    class Ray:
        def wait(self, answers: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:
            return answers, []

        def get(self, answer: Any) -> Any:
            return answer

        class exceptions:
            RayError = OSError

    class Remote:
        def remote(self, wanted: str, given: Any) -> str:
            return "the Ray node x has another"

    with pytest.raises(Missing, match="the Ray node x"):
        on_ray.RayWorker(Ray(), Remote()).digest(Task("x"))
