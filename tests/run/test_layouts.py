"""`slipstream run --compare-layouts`: one process for all devices against one for each."""

import os
import sys
from dataclasses import replace

import pytest

from free_port import free_port
from run_jobs import environment, run
from slipstream.errors import BadInput
from slipstream.experiment.receipt import read_receipt
from slipstream.run import layouts
from slipstream.run.layouts import devices_here, run_layouts
from slipstream.run.preflight import Preflight
from slipstream.run.run_dir import done_facts
from slipstream.run.settings import Settings

JOB = """
import os, sys, time
import jax, jax.numpy as jnp, numpy as np
if "alone" not in sys.argv:
    jax.distributed.initialize("nowhere:1", 64, 7)
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((jax.device_count(),), ("d",))
def put(value, *cut):
    return jax.make_array_from_callback(
        value.shape, NamedSharding(mesh, P(*cut)), lambda index: value[index]
    )

w, x = put(np.full((32, 32), 0.01, np.float32)), put(np.ones((8, 32), np.float32), "d")

@jax.jit
def step(w, x):
    loss, grad = jax.value_and_grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(w)
    return w - 0.1 * grad, loss

end = time.monotonic() + 300
while time.monotonic() < end:
    w, loss = step(w, x)
    jax.block_until_ready(loss)
"""
TWO = "--xla_force_host_platform_device_count=2"
GPUS = Preflight({}, (), {}, "0.10.2", ("NVIDIA H200", "NVIDIA H200"), ())


@pytest.fixture
def settings(tmp_path, monkeypatch):
    (tmp_path / "job.py").write_text(JOB)
    for name in [k for k in os.environ if k not in environment()]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(layouts, "_free_port", free_port)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("XLA_FLAGS", TWO)
    command = (sys.executable, str(tmp_path / "job.py"))
    return Settings(command, tmp_path / "out", rounds=1, layouts=True)


def test_both_layouts_are_run_and_timed(settings):
    said = []
    ended = run_layouts(settings, lambda phase, text: said.append((phase, text)))
    receipt = ended.receipt
    assert ended.code == 0, receipt.why
    assert [arm["processes"] for arm in receipt.arms] == [1, 2]
    assert all(arm["rounds"] == 1 and arm["step_us"] > 0 for arm in receipt.arms)
    # Both ran the same program, and one round of whole runs is no proof.
    assert len({arm["content"] for arm in receipt.arms}) == 1
    assert (receipt.verdict, "only 1 rounds" in receipt.why) == ("can't tell", True)
    assert read_receipt(settings.out).step_us == receipt.step_us
    facts = [done_facts(settings.out / "layouts" / "round0-2" / f"rank{rank}") for rank in (0, 1)]
    assert [(one["processes"], len(one["devices"])) for one in facts] == [(2, 1), (2, 1)]
    (one,) = (settings.out / "layouts" / "round0-1").iterdir()
    assert (done_facts(one)["processes"], len(done_facts(one)["devices"])) == (1, 2)
    assert [phase for phase, _ in said if not phase.endswith("…")] == [
        "check",
        "compare",
        "verdict",
    ]


def test_a_job_that_does_not_join_the_others_is_no_layout(settings):
    alone = replace(settings, command=(*settings.command, "alone"))
    receipt = run_layouts(alone, lambda phase, text: None).receipt
    assert receipt.verdict == "can't tell"
    assert "it has to call jax.distributed.initialize()" in receipt.why


def test_a_job_that_fails_says_so_with_its_own_code(settings):
    failing = replace(settings, command=(sys.executable, "-c", "raise SystemExit(7)"))
    ended = run_layouts(failing, lambda phase, text: None)
    assert ended.code == 7
    assert "ended with code 7 before its steps were timed" in ended.receipt.why


def test_one_device_is_nothing_to_share_out(tmp_path):
    done = run(tmp_path / "out", ["true"], "--compare-layouts", cwd=tmp_path)
    assert done.code == 2
    assert "no GPU that the job would see" in done.err


def test_gpus_are_shared_out_by_number():
    devices = devices_here(GPUS, {})
    assert [devices.of_process(p, 2) for p in (0, 1)] == [[0], [1]]
    assert devices.of_process(0, 1) == [0, 1]
    assert devices.variables(2, {}) == {}
    with pytest.raises(BadInput, match=r"has one GPU \(NVIDIA H200\)"):
        devices_here(GPUS, {"CUDA_VISIBLE_DEVICES": "1"})


def test_virtual_devices_are_made_by_each_process():
    devices = devices_here(GPUS, {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": f"--a=1 {TWO}"})
    flags = devices.variables(2, {"XLA_FLAGS": f"--a=1 {TWO}"})["XLA_FLAGS"]
    assert flags == "--a=1 --xla_force_host_platform_device_count=1"
    assert devices.of_process(1, 2) is None
