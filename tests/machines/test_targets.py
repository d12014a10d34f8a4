"""Target configurations: the real compiler takes every one of them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from slipstream.errors import BadInput
from slipstream.machines.files import read_machine
from slipstream.machines.gpus import gpus
from slipstream.machines.targets import (
    capability_of,
    cores_of,
    cudnn_of,
    model_of,
    target_config,
)
from slipstream.machines.topology import machine

COMPILE = """
import sys
import jax, jax.numpy as jnp, numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

for text in sys.stdin.read().split("====\\n"):
    topology = topologies.get_topology_desc(
        topology_name="", platform="cuda", topology="1x1x2", target_config=text
    )
    sharding = NamedSharding(Mesh(np.array(topology.devices), ("d",)), PartitionSpec("d"))
    step = jax.jit(lambda x: jnp.sum(jnp.tanh(x)), in_shardings=sharding)
    compiled = step.lower(jax.ShapeDtypeStruct((256, 128), jnp.bfloat16)).compile()
    print(topology.devices[0].device_kind, "all-reduce" in compiled.as_text())
"""


def test_the_h200s_is_what_a_real_one_says(data: Path) -> None:
    assert target_config(machine("8xH200")) == (data / "h200_target.txtpb").read_text()


def test_a_configuration_tells_the_gpu_and_cudnn(data: Path) -> None:
    real = (data / "h200_target.txtpb").read_text()
    assert (capability_of(real), cudnn_of(real)) == ((9, 0), 91900)
    assert (cores_of(real), model_of(real)) == (132, "NVIDIA H200")
    for gpu in gpus().values():
        assert capability_of(target_config(gpu)) == gpu.compute_capability
    one_line = "cuda_compute_capability { major: 10 minor: 3 } dnn_version_info{major:9 patch:1}"
    assert (capability_of(one_line), cudnn_of(one_line)) == ((10, 3), 90001)
    assert (capability_of(""), cudnn_of(""), cores_of(""), model_of("")) == ((0, 0), 0, 0, "")


def test_what_a_gpu_said_itself_goes_first() -> None:
    assert target_config(machine("H200"), exact="its own words") == "its own words"


def test_the_compiler_takes_every_gpu() -> None:
    texts = "====\n".join(target_config(gpu) for gpu in gpus().values())
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    environment.pop("XLA_FLAGS", None)
    done = subprocess.run(
        [sys.executable, "-c", COMPILE], input=texts, capture_output=True, text=True,
        env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == [f"{gpu.full_name} True" for gpu in gpus().values()]


def test_a_generation_that_is_not_known(tmp_path: Path) -> None:
    file = tmp_path / "old.toml"
    file.write_text('[gpu]\nbase = "A100"\nname = "V100"\ncompute_capability = [7, 0]\n')
    with pytest.raises(BadInput, match=r"compute capability 7.0 \(V100\); known: 8.0, 9.0"):
        target_config(read_machine(file))
