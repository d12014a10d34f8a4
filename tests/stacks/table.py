"""The training scripts that are run bare and under `slipstream run`, one row for each."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

SCRIPTS = Path(__file__).parent / "scripts"
# Checkpoints hold times and random names.
CHECKPOINT = (
    "_CHECKPOINT_METADATA",
    "commit_success.txt",
    "d/*",
    "manifest.json",
    "manifest.ocdbt",
    "metadata.json",
)
CHECKPOINT_DATA = (r"/d/[0-9a-f]{32}$", "/d/…")
FOUR_DEVICES = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}

MAXTEXT_TINY = (
    "src/maxtext/configs/base.yml",
    "run_name=tiny base_output_directory={folder} steps={steps} dataset_type=synthetic",
    "per_device_batch_size=2 max_target_length=32 base_emb_dim=64 head_dim=32 base_mlp_dim=128",
    "base_num_query_heads=2 base_num_kv_heads=2 base_num_decoder_layers=2 vocab_size=256",
    "hardware=cpu attention=dot_product checkpoint_period=200 async_checkpointing=false",
    "enable_goodput_recording=false monitor_goodput=false skip_jax_distributed_system=true",
)


@dataclass(frozen=True)
class Stack:
    name: str
    job: str
    """what follows `python`: a file of scripts/, or -m and a module, then arguments;
    {steps} and {folder}, the one that it runs in, are filled in"""
    steps: int
    """more if the job ends before anything was compared"""
    function: str
    """a regular expression for the function that deserves to be optimised"""
    packages: tuple[str, ...] = ()
    """distributions that it needs beside jax; the first one's version goes into the table"""
    environment: Mapping[str, str] = field(default_factory=dict)
    code: int = 0
    loss: str = r".*loss.*"
    """a regular expression for what it says of its losses; it must say the same in both runs"""
    written_anew: tuple[str, ...] = ()
    """files (as Path.match has it) whose contents differ between two bare runs too"""
    renamed: tuple[tuple[str, str], ...] = ()
    """what differs in the names of files between two bare runs: a regular expression, and what
    stands for it"""

    def words(self, steps: int, folder: Path) -> list[str]:
        first, *rest = self.job.format(steps=steps, folder=folder).split()
        return [sys.executable, *([first] if first == "-m" else [str(SCRIPTS / first)]), *rest]

    @property
    def variables(self) -> dict[str, str]:
        """Seeds and paths are the same in both runs."""
        path = os.pathsep.join(filter(None, [str(SCRIPTS), os.environ.get("PYTHONPATH")]))
        return {"PYTHONPATH": path, "PYTHONHASHSEED": "0", **self.environment}

    @property
    def missing(self) -> list[str]:
        return [package for package in self.packages if installed(package) is None]


def installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


# Plain JAX: these need nothing else, and run with every `make test`.
STACKS = [
    Stack("one jit, donation", "plain_jax.py --steps {steps}", 200, "jit_train_step"),
    Stack("scan", "scan_layers.py --steps {steps}", 150, "jit_train_step"),
    Stack("pmap", "pmap.py --steps {steps}", 200, "jit__fun", environment=FOUR_DEVICES),
    Stack(
        "shard_map", "shard_map.py --steps {steps}", 200, "jit_train_step", environment=FOUR_DEVICES
    ),
    Stack("several jits", "several_jits.py --steps {steps}", 200, "jit_compute_gradients"),
    Stack("data loader", "data_loader.py --steps {steps}", 150, "jit_train_step"),
    Stack("evaluation", "evaluation.py --steps {steps}", 200, "jit_train_step"),
    Stack("python -m, find_spec", "-m trainer --steps {steps}", 200, "jit_train_step", code=4),
]

# What needs more than jax is run by `make test-stacks`.
STACKS += [
    Stack("Optax", "optax_loop.py --steps {steps}", 3000, "jit_step", packages=("optax",)),
    Stack(
        "Flax NNX",
        "flax_nnx.py --steps {steps}",
        1500,
        "jit_train_step",
        packages=("flax", "optax"),
    ),
    Stack(
        "Flax Linen",
        "../../../examples/flax_train.py --steps {steps}",
        400,
        "jit_train_step",
        packages=("flax", "optax"),
        loss=r"loss \S+",  # the time of a step is on the same line
    ),
    Stack(
        "Equinox",
        "equinox_lm.py --steps {steps}",
        500,
        "jit_make_step",
        packages=("equinox", "optax"),
    ),
    Stack(
        "Haiku", "haiku_lstm.py --steps {steps}", 600, "jit_update", packages=("dm-haiku", "optax")
    ),
    Stack(
        "Keras",
        "keras_fit.py --steps {steps}",  # in each of ten epochs
        50,
        "jit_train_step",
        packages=("keras",),
        environment={"KERAS_BACKEND": "jax"},
    ),
    Stack(
        "Orbax checkpoints",
        "orbax_loop.py --steps {steps}",
        1000,
        "jit_train_step",
        packages=("orbax-checkpoint", "optax"),
        written_anew=CHECKPOINT,
        renamed=(CHECKPOINT_DATA,),
    ),
    Stack(
        "Hugging Face, Flax",
        "run_clm_flax.py --steps {steps}",
        300,
        "jit__fun",
        packages=("transformers", "datasets", "flax", "optax"),
        environment={"HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1"},
    ),
    Stack(
        "Levanter",
        "levanter_lm.py --steps {steps}",
        120,
        "jit__train_step",
        packages=("marin-levanter",),
        loss=r"step \d+ loss \S+",  # its progress lines tell times, too
        written_anew=(*CHECKPOINT, "*.log", "*.hlo.txt", "*.jaxpr.txt.gz"),
        renamed=(CHECKPOINT_DATA,),
    ),
    Stack(
        "MaxText",
        f"-m maxtext.trainers.pre_train.train {' '.join(MAXTEXT_TINY)}",
        300,
        "jit_train_step",
        packages=("maxtext", "flax", "omegaconf"),
        environment={"DECOUPLE_GCLOUD": "TRUE"},
        loss=r"completed step: \d+|loss: \S+",
        written_anew=(*CHECKPOINT, "events.out.*"),
        renamed=(CHECKPOINT_DATA, (r"events\.out\..*", "events.out.…")),
    ),
]
