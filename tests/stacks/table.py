"""The training scripts that are run bare and under `slipstream run`, one row for each."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

SCRIPTS = Path(__file__).parent / "scripts"
FOUR_DEVICES = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}


@dataclass(frozen=True)
class Stack:
    name: str
    job: str
    """what follows `python`: a file of scripts/, or -m and a module, then arguments"""
    steps: int
    """what goes into the job for {steps}; more if that ends before anything was compared"""
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

    def words(self, steps: int) -> list[str]:
        first, *rest = self.job.format(steps=steps).split()
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
    Stack("scan", "scan_layers.py --steps {steps}", 100, "jit_train_step"),
    Stack("pmap", "pmap.py --steps {steps}", 200, "jit__fun", environment=FOUR_DEVICES),
    Stack(
        "shard_map", "shard_map.py --steps {steps}", 200, "jit_train_step", environment=FOUR_DEVICES
    ),
    Stack("several jits", "several_jits.py --steps {steps}", 200, "jit_compute_gradients"),
    Stack("python -m, find_spec", "-m trainer --steps {steps}", 200, "jit_train_step", code=4),
]
