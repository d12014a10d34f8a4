"""Programs that are launched: values in their command and configuration, their step compiled."""

import sys

import pytest

from slipstream.compiler.failures import CompileFailed
from slipstream.compiler.time_limit import TimeLimit
from slipstream.errors import BadInput
from slipstream.machines.topology import machine
from slipstream.plan.plans import PlanOptions, plan
from slipstream.plan.search.launched import JobSession, command_parameters, filled
from slipstream.plan.search.objective import Objective

TRAIN = """
import json, sys
batch, config = int(sys.argv[1].partition("=")[2]), json.load(open(sys.argv[2]))
if batch == 3:
    raise ValueError("three is odd")
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

mesh = Mesh(np.array(jax.devices()), ("data",))
batch = jnp.ones((batch * jax.device_count(), config["width"]))
batch = jax.device_put(batch, NamedSharding(mesh, P("data")))

@jax.jit
def step(weights):
    return weights - jax.grad(lambda w: jnp.mean(jnp.tanh(batch @ w) ** 2))(weights)

weights = jnp.ones((config["width"], config["width"]))
for _ in range(10_000):
    weights = step(weights)
"""


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    folder = tmp_path_factory.mktemp("launched")
    (folder / "train.py").write_text(TRAIN)
    (folder / "config.json").write_text('{"width": {width}}')
    return (sys.executable, str(folder / "train.py"), "--batch={batch}", f"{folder}/config.json")


def test_a_launched_program_is_planned_by_its_command(command, tmp_path):
    options = PlanOptions(
        on=("2xH100",),
        vary=("batch=1,3,64", "width=128"),
        objective=Objective(work="batch * devices", unit="samples"),
        folder=tmp_path / "plan",
        command=command,
    )
    found = plan("train.py", options)
    (planned,) = found.machines
    by_batch = {one.choices["batch"]: one for one in planned.candidates}
    assert planned.best.choices == {"batch": 64, "width": 128} and planned.best.work == 128
    # Weights and the batch of one device, in float32.
    assert by_batch[64].memory_bytes > by_batch[1].memory_bytes > 128 * 128 * 4
    assert by_batch[3].status == "invalid" and "ValueError: three is odd" in by_batch[3].why


def test_places_in_the_command_and_its_configuration_are_filled(command, tmp_path):
    words = filled(command, {"batch": 8, "width": 64, "unused": None}, tmp_path)
    assert words[2:] == ("--batch=8", str(tmp_path / "config.json"))
    assert (tmp_path / "config.json").read_text() == '{"width": 64}'
    assert filled(("python", "{a}{b}", "{}"), {"a": 1, "b": True}, tmp_path) == (
        *("python", "1True", "{}"),
    )


def test_what_varies_needs_a_place(command):
    assert [one.name for one in command_parameters(command, ("batch=1", "width=2"))] == [
        *("batch", "width"),
    ]
    with pytest.raises(BadInput, match=r"--vary depth: neither the command.*has \{depth\}"):
        command_parameters(command, ("batch=1", "depth=2"))
    with pytest.raises(BadInput, match="nothing may vary in the command.*--vary batch=1,2,4 -- "):
        command_parameters(command, ())


def test_the_work_of_a_command_has_to_be_said(command, tmp_path):
    options = PlanOptions(vary=("batch=1",), folder=tmp_path / "plan", command=command)
    with pytest.raises(BadInput, match="can't be read from a command; .*--work"):
        plan("train.py", options)


def test_a_job_that_hangs_is_ended():
    session = JobSession((sys.executable, "-c", "import time; time.sleep(600)"), machine("1xH100"))
    with session, TimeLimit(0.5, session.abort):
        with pytest.raises(CompileFailed, match="the job was aborted") as failed:
            session.portable_target({})
        assert failed.value.kind == "aborted"


def test_a_command_that_does_not_exist_says_so():
    with JobSession(("no-such-program",), machine("1xH100")) as session:
        with pytest.raises(CompileFailed, match="no-such-program can't be started") as failed:
            session.portable_target({})
        assert failed.value.kind == "invalid"
