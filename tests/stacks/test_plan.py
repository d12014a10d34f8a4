"""Steps of real training programs, lowered for GPUs as `slipstream plan -- COMMAND` does."""

import sys

import pytest

from slipstream.machines.topology import machine
from slipstream.plan.search.launched import JobSession
from stacks.table import MAXTEXT_TINY, SCRIPTS, STACKS

ON_GPUS = "hardware=gpu attention=cudnn_flash_jax head_dim=64 ici_tensor_parallelism={tensor}"
JOBS = {
    # An evaluation, or a look at the data, comes before the training.
    "evaluation": ("1xH100", "evaluation.py --steps 100000", {}),
    "data loader": ("1xH100", "data_loader.py --steps 100000", {}),
    "Optax": ("1xH100", "optax_loop.py --steps 10000", {}),
    "Flax NNX": ("1xH100", "flax_nnx.py --steps 10000", {}),
    "Levanter": ("8xH100", "levanter_lm.py --steps 100", {}),
    "MaxText": (
        "8xH100",
        "-m maxtext.trainers.pre_train.train "
        + " ".join(MAXTEXT_TINY)
        .format(folder="{folder}", steps=100)
        .replace("hardware=cpu attention=dot_product", ON_GPUS)
        .replace("head_dim=32", ""),
        {"tensor": 2},
    ),
}
STACK = {one.name: one for one in STACKS}


@pytest.mark.parametrize("name", JOBS)
def test_a_step_is_lowered_for_gpus_and_not_run(name, monkeypatch, tmp_path):
    if STACK[name].missing:
        pytest.skip(f"not installed: {', '.join(STACK[name].missing)}; make test-stacks runs it")
    for variable, value in STACK[name].variables.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.chdir(tmp_path)
    spec, job, places = JOBS[name]
    first, *rest = job.split()
    command = (sys.executable, *([first] if first == "-m" else [str(SCRIPTS / first)]), *rest)
    with JobSession(command, machine(spec)) as session:
        target = session.portable_target(places)
    assert target.devices == tuple(range(machine(spec).devices))
    assert STACK[name].function.encode() in target.content
    # MaxText's attention is cuDNN's, divided by batch and heads.
    assert (b"Slipstream.Partitioned" in target.content) == (name == "MaxText")
