"""Programs that are launched: values in their command and configuration, their step compiled."""

import sys
from pathlib import Path

import pytest

from slipstream.compiler.failures import CompileFailed
from slipstream.compiler.targets import Target
from slipstream.compiler.time_limit import TimeLimit
from slipstream.errors import BadInput
from slipstream.machines.topology import machine
from slipstream.plan.plans import PlanOptions, plan
from slipstream.plan.search.evaluation import failed_outcome
from slipstream.plan.search.launched import JobSession, _unusable, command_parameters, filled
from slipstream.plan.search.objective import Objective

TRAIN = """
import json, sys
batch, config = int(sys.argv[1].partition("=")[2]), json.load(open(sys.argv[2]))
if batch == 3:
    raise ValueError("three is odd")
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

mesh = Mesh(np.array(jax.devices()), ("data",))
batch = jnp.ones((batch * jax.device_count(), 64, config["width"]), jnp.bfloat16)
batch = jax.device_put(batch, NamedSharding(mesh, P("data")))

def loss(weights, batch):
    heads = (batch @ weights.astype(batch.dtype)).reshape(*batch.shape[:2], -1, 64)
    return jnp.mean(jax.nn.dot_product_attention(heads, heads, heads, implementation="cudnn") ** 2)

@jax.jit
def step(weights, batch):
    return weights - jax.grad(loss)(weights, batch)

weights = jnp.ones((config["width"], config["width"]))
for _ in range(10_000):
    weights = step(weights, batch)
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
    # Weights and the batch of one device.
    assert by_batch[64].memory_bytes > by_batch[1].memory_bytes > 128 * 128 * 4
    # cuDNN's kernel, for the batch of one device.
    assert planned.best.parts_us["attention"] > 0
    assert by_batch[3].status == "invalid" and "ValueError: three is odd" in by_batch[3].why


def test_places_in_the_command_and_its_configuration_are_filled(command, tmp_path):
    words = filled(command, {"batch": 8, "width": 64, "unused": None}, tmp_path)
    copy = tmp_path / "config0" / "config.json"
    assert words[2:] == ("--batch=8", str(copy)) and copy.read_text() == '{"width": 64}'
    # Configuration files name others by relative paths.
    assert (copy.parent / "train.py").read_text() == TRAIN
    assert filled(("python", "{a}{b}", "{}"), {"a": 1, "b": True}, tmp_path) == (
        *("python", "1True", "{}"),
    )


ORDERED = """
import os, pathlib, sys
os.environ["XLA_FLAGS"] = "--xla_gpu_enable_latency_hiding_scheduler=false"
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

(pathlib.Path(sys.argv[1]) / "checkpoint").write_text("of this combination")
devices = jax.devices()[::-1] if len(sys.argv) < 3 else jax.devices()[:1]
batch = jax.device_put(np.ones((8, 8), np.float32), NamedSharding(Mesh(devices, ("x",)), P("x")))
step = jax.jit(lambda batch: jnp.tanh(batch @ batch))
while True:
    batch = step(batch)
"""


def test_the_jobs_own_flags_and_its_order_of_devices_count(tmp_path):
    command = (sys.executable, "-c", ORDERED, "{folder}")
    with JobSession(command, machine("2xH100")) as session:
        target = session.portable_target({})
    assert target.devices == (1, 0)
    assert target.options == {"xla_gpu_enable_latency_hiding_scheduler": "false"}


def test_a_step_on_some_of_the_devices_is_not_the_machines():
    command = (sys.executable, "-c", ORDERED, "{folder}", "one")
    why = "runs on 1 of 2 devices; expected a mesh of all"
    session = JobSession(command, machine("2xH100"))
    with session, pytest.raises(CompileFailed, match=why):
        session.portable_target({})


def test_another_jaxlib_is_refused():
    found = {"jaxlib": "0.9.0", "order": [0], "program": "jit_step"}
    why = _unusable(found, machine("1xH100"))
    assert "the job has jaxlib 0.9.0" in why and "install Slipstream where the job's Python" in why


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("raise SystemExit(3)", r"failed before its step was known \(exit code 3\): nothing"),
        ("import os; os.kill(os.getpid(), 9)", r"\(SIGKILL ended it\)"),
        ("print('hello')", "the job never imported jax"),
        ("import json; json.loads('{')", "JSONDecodeError: Expecting property name"),
    ],
)
def test_why_there_is_no_step(code, why):
    session = JobSession((sys.executable, "-c", code), machine("1xH100"))
    with session, pytest.raises(CompileFailed, match=why) as failed:
        session.portable_target({})
    log = Path(str(failed.value).rpartition("(log: ")[2].rstrip(")"))
    assert log.is_file() and failed.value.kind == "invalid"


def test_what_varies_needs_a_place(command):
    assert [one.name for one in command_parameters(command, ("batch=1", "width=2"))] == [
        *("batch", "width"),
    ]
    with pytest.raises(BadInput, match=r"--vary depth: neither the command.*has \{depth\}"):
        command_parameters(command, ("batch=1", "depth=2"))
    with pytest.raises(BadInput, match="nothing may vary in the command.*--vary batch=1,2,4 -- "):
        command_parameters(command, ())


def test_a_place_needs_values():
    words = ("train", "--batch={batch}", "--out={folder}", "-c", 'f({"a": 1})', "--layers={layers}")
    with pytest.raises(BadInput, match=r"^--layers=\{layers\}: no --vary .*--vary layers=VALUE,…"):
        command_parameters(words, ("batch=1",))
    assert len(command_parameters(words, ("batch=1", "layers=2"))) == 2


def test_the_work_of_a_command_has_to_be_said(command, tmp_path):
    options = PlanOptions(vary=("batch=1",), folder=tmp_path / "plan", command=command)
    with pytest.raises(BadInput, match="can't be read from a command; .*--work"):
        plan("train.py", options)


def test_a_job_that_hangs_is_ended():
    code = "import time; print('loading data', flush=True); time.sleep(600)"
    session = JobSession((sys.executable, "-c", code), machine("1xH100"))
    with session, TimeLimit(2.0, session.abort):
        with pytest.raises(CompileFailed, match="the job was aborted") as failed:
            session.portable_target({})
        assert failed.value.kind == "aborted"
    outcome = failed_outcome(failed.value, 300.0)
    assert outcome.note.startswith("it took more than 300 s: the job had not run its step")
    assert "last said: loading data" in outcome.note and "--timeout 20m" in outcome.note


def test_a_command_that_does_not_exist_says_so():
    with JobSession(("no-such-program",), machine("1xH100")) as session:
        with pytest.raises(CompileFailed, match="no-such-program can't be started") as failed:
            session.portable_target({})
        assert failed.value.kind == "invalid"


def test_no_machine_code_is_made(refused_compiles, monkeypatch):
    lowered = Target("stablehlo", "train.py", b"module")
    monkeypatch.setattr(JobSession, "portable_target", lambda self, keywords: lowered)
    job = JobSession(("python", "train.py"), machine("4xH100"))
    with job as session, pytest.raises(CompileFailed):
        session.compile({})
    assert "xla_gpu_cuda_data_dir" in refused_compiles[0]
