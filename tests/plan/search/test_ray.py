"""A plan on a real Ray cluster, of which a worker is killed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from on_ray import busy_worker
from race_lost import RaceLost
from slipstream.compiler.targets import Target
from slipstream.machines.topology import machine
from slipstream.plan.plans import PlanOptions, resume, start
from slipstream.plan.search.bounds import LowerBounds
from slipstream.plan.search.evaluation import LoweredTask
from slipstream.plan.search.facts import EvaluationSpec, Facts
from slipstream.plan.search.objective import Objective
from slipstream.plan.search.ray import NodeSpec

TARGET = f"{Path(__file__).parents[1] / 'choices_target.py'}:build"


@pytest.mark.retry("the search can end before its worker is killed")
def test_a_plan_on_ray_finds_what_it_finds_here(ray_nodes, ray_environment, tmp_path):
    on_ray, here = tmp_path / "ray", tmp_path / "here"
    vary = ("batch=1,4", "keep=ALL", "unused=false", "goes_wrong=no,raises,large")
    start(TARGET, PlanOptions(on=("4xH100",), vary=vary, folder=on_ray))
    shutil.copytree(on_ray, here)
    command = [sys.executable, "-m", "slipstream", "plan", "resume", on_ray, "--json"]
    said, told = tmp_path / "out", tmp_path / "log"
    with said.open("w") as out, told.open("w") as log:
        search = subprocess.Popen(
            [*command, "--ray", ray_nodes["address"]], stdout=out, stderr=log, env=ray_environment
        )
    worker, _ = busy_worker(search, ray_nodes["raylets"])
    os.kill(worker, signal.SIGKILL)
    while search.poll() is None:
        time.sleep(0.1)
    assert search.returncode == 0, told.read_text()
    if "lost a worker on " not in told.read_text():
        raise RaceLost(f"the worker had its answer when it was killed: {told.read_text()}")
    found = json.loads(said.read_text())
    assert found["stopped_because"] == "every setting of the space was tried"
    (expected,) = resume(here).machines
    assert {json.dumps(one["choices"]): _figures(one) for one in found["candidates"]} == {
        json.dumps(one.choices): (one.status, one.step_us, one.memory_bytes)
        for one in expected.candidates
    }


def _figures(candidate):
    return tuple(candidate[name] for name in ("status", "step_us", "memory_bytes"))


def test_nodes_make_no_machine_code(refused_compiles):
    spec = EvaluationSpec(Target("stablehlo", "step", b"module"), machine("4xH100"), Objective())
    with NodeSpec(spec).runner({}) as node:
        outcome = node.evaluate(LoweredTask(spec.target, Facts(LowerBounds(0.0, "", 0, ""))))
    assert (outcome.status, len(refused_compiles)) == ("refused", 1)
    assert "xla_gpu_cuda_data_dir" in refused_compiles[0]
