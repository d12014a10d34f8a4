"""Candidates on a real Ray cluster of two nodes, of which one is lost while it has a candidate."""

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from free_port import free_port
from on_ray import busy_worker
from race_lost import RaceLost
from slipstream.compiler.compile import machine_of
from slipstream.compiler.targets import Target
from slipstream.errors import BadInput, Missing
from slipstream.results.tuning import CRASH
from slipstream.tune.ray.cluster import Cluster, version_mismatch
from slipstream.tune.ray.connection import Connection
from slipstream.tune.ray.worker import lacking, versions, worker_class
from slipstream.tune.search.screen import ScreenSpec
from slipstream.tune.search.search import NoWorker
from slipstream.tune.space.space import SpaceOptions
from slipstream.tune.studies import TuneOptions, resume, start
from slipstream.tune.study_folder import open_study, read_study

SIZE = "xla_gpu_graph_min_graph_size"
# All of a small space is tried, so that two searches have the same candidates.
ASKED = SpaceOptions(added={SIZE: ("2", "3", "7", "9")}, only=(SIZE,))
TRIALS = 5


def results(folder: Path) -> dict[str, tuple]:
    """Each candidate's result; every candidate was tried to its end, once."""
    study = open_study(folder, read_study(folder))
    rows = study.rows()
    study.close()
    done = [row for row in rows if row.state == "done" and row.repeat_of is None]
    assert set(Counter(str(row.settings) for row in done).values()) == {1}
    assert not [row for row in rows if row.state in ("running", "waiting")]
    return {
        str(row.settings): (row.outcome.status, row.outcome.step_us, row.outcome.program)
        for row in done
    }


@pytest.mark.retry("the search can end before its worker is killed")
def test_a_study_on_ray_loses_no_result_with_a_worker_or_a_node(
    ray_nodes, ray_environment, target, tmp_path
):
    on_ray, here = tmp_path / "ray", tmp_path / "here"
    start(target, TuneOptions(on="1xH200", trials=TRIALS, folder=on_ray, space=ASKED))
    shutil.copytree(on_ray, here)
    command = [sys.executable, "-m", "slipstream", "tune", "resume", on_ray, "--json"]
    said, told = tmp_path / "out", tmp_path / "log"
    with said.open("w") as out, told.open("w") as log:
        search = subprocess.Popen(
            [*command, "--ray", ray_nodes["address"]], stdout=out, stderr=log, env=ray_environment
        )
    while "2 workers on 1 host of the Ray cluster" not in told.read_text():
        assert search.poll() is None, told.read_text()
        time.sleep(0.02)
    worker, node = busy_worker(search, ray_nodes["raylets"])
    os.kill(worker, signal.SIGKILL)
    worker, node = busy_worker(search, [one for one in ray_nodes["raylets"] if one != node])
    os.kill(node, signal.SIGKILL)
    os.kill(worker, signal.SIGKILL)
    assert search.wait(300) == 0, told.read_text()
    assert "(raylet)" not in told.read_text()
    if "a worker on " not in told.read_text():
        raise RaceLost(f"the workers had their answers when they were killed: {told.read_text()}")
    assert json.loads(said.read_text())["stopped_because"] == f"{TRIALS} candidates were tried"
    resume(here, jobs=1)
    assert results(on_ray) == results(here)


def test_a_node_without_slipstream_reports_it(tmp_path):
    from ray import cloudpickle

    (tmp_path / "worker").write_bytes(cloudpickle.dumps(worker_class()))
    # Without `site` packages are found, but not what is installed from its sources.
    code = f"""
import sys
sys.path.append({sysconfig.get_path("purelib")!r})
from ray import cloudpickle
with open({str(tmp_path / "worker")!r}, "rb") as file:
    print(cloudpickle.load(file)().start({{}}, b"")["lacking"])
"""
    command = [sys.executable, "-S", "-c", code]
    said = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path)
    assert said.stdout == "Slipstream is not installed (No module named 'slipstream')\n"


def test_a_node_with_other_versions_is_named_with_what_to_install():
    wanted = {**versions(), "jaxlib": "0.4.1"}
    text = lacking(wanted)
    assert text == f"jaxlib {versions()['jaxlib']} instead of 0.4.1"
    answer = {"host": "node7", "python": "/opt/python", "lacking": text}
    error = str(version_mismatch(answer, wanted))
    assert "the Ray node node7 can't compile for this study: jaxlib" in error
    assert "/opt/python -m pip install" in error and "jaxlib==0.4.1" in error
    assert lacking(versions()) == ""


def test_an_unreachable_cluster_fails_at_once():
    with pytest.raises(
        BadInput, match="'nonsense' is not the address of a Ray cluster; expected auto"
    ):
        Connection("nonsense").open()
    free = free_port()
    with pytest.raises(Missing, match=rf"no Ray cluster at ray://127.0.0.1:{free} .*refused"):
        Connection(f"ray://127.0.0.1:{free}").open()


# What can't be had from a real cluster on demand: workers that die again and again.


class StandIn:
    """As much of Ray as `Cluster` uses; `fate` says what comes of each call of a worker."""

    class exceptions:
        class RayError(Exception):
            pass

    def __init__(self, fate):
        self.fate, self.killed = fate, 0

    def is_initialized(self):
        return True

    def cluster_resources(self):
        return {"CPU": 2.0}

    def put(self, content):
        return content

    def remote(self, **options):
        return lambda cls: SimpleNamespace(remote=lambda: Actor())

    def wait(self, refs, **_):
        return refs, []

    def get(self, ref, timeout=None):
        found = self.fate.get(ref[0], {"host": "node7", "lacking": "", "python": "python"})
        if found is None:
            raise self.exceptions.RayError("it is dead")
        return found

    def kill(self, actor):
        self.killed += 1


class Actor:
    def __getattr__(self, name):
        return SimpleNamespace(remote=lambda *_: (name, object()))


def stand_in(monkeypatch, fate) -> tuple[StandIn, Cluster]:
    ray = StandIn(fate)
    monkeypatch.setattr("slipstream.tune.ray.connection.import_ray", lambda: ray)
    for name in ("POLL_S", "OUTLIVES_S"):
        monkeypatch.setattr(f"slipstream.tune.ray.cluster.{name}", 0.01)
    return ray, Cluster("auto", ScreenSpec(Target("hlo", "x"), machine_of("1xH200")))


def test_three_workers_lost_over_a_candidate_make_it_a_crash(monkeypatch):
    ray, cluster = stand_in(monkeypatch, {"evaluate": None})
    with cluster, cluster.runner() as runner:
        found = runner.evaluate({})
    assert found.status == CRASH and ray.killed == 3
    assert (
        found.note == "3 workers were lost while evaluating it; the last one: it is dead [on node7]"
    )


def test_a_compiler_that_dies_with_its_node_is_not_the_candidates_crash(monkeypatch):
    dying = {"evaluate": {"status": CRASH, "note": "killed"}, "ping": None}
    answers = iter([{}, None] * 3)
    ray, cluster = stand_in(monkeypatch, dying)
    # It answers before it is given a candidate, and not after.
    monkeypatch.setattr(
        ray, "get", lambda ref, **_: StandIn.get(
            ray if ref[0] != "ping" else StandIn({"ping": next(answers)}), ref
        )
    )  # fmt: skip
    with cluster, cluster.runner() as runner:
        assert "3 workers were lost" in runner.evaluate({}).note


def test_failing_starts_and_missing_packages_end_the_search(monkeypatch):
    _, cluster = stand_in(monkeypatch, {"start": None})
    with (
        cluster,
        cluster.runner() as runner,
        pytest.raises(Missing, match="8 workers in a row died"),
    ):
        runner.evaluate({})
    unfit_node = {"host": "node7", "python": "python", "lacking": "jaxlib 1 instead of 2"}
    _, cluster = stand_in(monkeypatch, {"start": unfit_node})
    with cluster, cluster.runner() as runner, pytest.raises(Missing, match="node7 can't compile"):
        runner.evaluate({})
    # After the search nobody is there to try anything.
    with pytest.raises(NoWorker):
        cluster.evaluate({})
