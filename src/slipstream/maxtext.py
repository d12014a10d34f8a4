"""MaxText's training step for a machine that is not here, made by MaxText itself.

    slipstream predict --maxtext llama.yml per_device_batch_size=4 --on 8xH100

`maxtext.trainers.pre_train.train_compile` makes the same step from shapes alone, for the machines
that it knows. `build` calls the same functions of MaxText with the devices of any other:

    CONFIG, key=value… ──pyconfig──► config ─┐
    devices of the machine ──► MaxText's mesh ─┴─► shapes, shardings ──► the jitted train_step

Importing this module imports neither MaxText nor jax.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from slipstream.compiler.targets import Target
from slipstream.errors import BadInput, Missing

__all__ = ["build", "step_target"]

_OURS = ("compile_topology", "internal_compile", "num_slices")
"""settings that say which machine it is"""


def step_target(config: str, settings: Sequence[str] = ()) -> Target:
    """What to compile, from MaxText's own command line: CONFIG key=value…"""
    if find_spec("maxtext") is None:
        raise Missing(
            "--maxtext needs MaxText 0.2 or newer in the environment of slipstream (import maxtext "
            "fails): pip install 'maxtext[cuda12]', or [tpu]; Python 3.12"
        )
    for word in settings:
        if "=" not in word:
            raise BadInput(
                f"{word} is no setting of MaxText; expected key=value: slipstream predict "
                f"--maxtext {config} per_device_batch_size=4"
            )
        if word.startswith(_OURS):
            raise BadInput(f"{word} would be another machine than that of --on; omit it")
    return Target(
        "python",
        f"MaxText's {config}",
        module=__name__,
        function="build",
        keywords={"words": [config, *settings], "version": version("maxtext")},
    )


def build(devices: list[Any], words: Sequence[str], version: str = "") -> tuple[Any, ...]:
    """MaxText's jitted train step and its abstract arguments, on these devices.

    `words` are CONFIG and key=value…; with another `version`, no earlier result is taken.
    """
    # Without it MaxText asks for Google's packages that monitor a job.
    os.environ.setdefault("DECOUPLE_GCLOUD", "TRUE")
    import jax
    from flax.core.spmd import logical_axis_rules
    from maxtext.configs import pyconfig
    from maxtext.trainers.pre_train import train, train_compile
    from maxtext.utils import maxtext_utils, sharding

    settings: Any = jax.config
    # As MaxText's own entry points do.
    settings.update("jax_default_prng_impl", "unsafe_rbg")
    with _without_dumps():
        config = pyconfig.initialize(["train_compile", *words, *_machine_settings(devices)])
    mesh = _mesh(config, devices)
    arguments, named, state_shardings, _, model = train_compile.get_shaped_inputs(mesh, config)
    param_shardings, state_shardings = sharding.maybe_update_params_sharding_with_opt(
        config, state_shardings
    )
    function, in_shardings, out_shardings, static, donated = (
        maxtext_utils.get_functional_train_with_signature(
            train.train_step,
            sharding.get_input_data_sharding(config, mesh),
            sharding.build_zero1_input_state_mesh_shardings(
                config, state_shardings, param_shardings
            ),
            model,
            config,
            param_shardings,
        )
    )
    jitted = jax.jit(
        function,
        in_shardings=in_shardings,
        out_shardings=out_shardings,
        static_argnums=static,
        donate_argnums=donated,
    )

    @contextmanager
    def inside() -> Iterator[None]:
        with jax.set_mesh(mesh), logical_axis_rules(config.logical_axis_rules):
            yield

    return _Step(jitted, inside, named), *arguments


@contextmanager
def _without_dumps() -> Iterator[None]:
    """MaxText adds flags for dumps to XLA_FLAGS, which would come too late here."""
    before = os.environ.get("XLA_FLAGS", "")
    yield
    added = set(os.environ.get("XLA_FLAGS", "").split()) - set(before.split())
    if added and all(flag.startswith("--xla_dump_") for flag in added):
        os.environ["XLA_FLAGS"] = before


def _machine_settings(devices: Sequence[Any]) -> list[str]:
    """What MaxText needs to know of the machine before it has the devices."""
    slices = len({_slice_index(device) for device in devices})
    return [
        f"hardware={'tpu' if _is_tpu(devices[0]) else 'gpu'}",
        # Any name: the devices are given. With one, MaxText starts no distributed system.
        "compile_topology=slipstream",
        f"compile_topology_num_slices={slices}",
        "internal_compile=true",
        f"internal_compile_num_devices={len(devices)}",
        "enable_checkpointing=false",
    ]


def _mesh(config: Any, devices: Sequence[Any]) -> Any:
    import jax
    import numpy as np
    from jax.sharding import AxisType, Mesh
    from maxtext.common.common_types import ShardMode
    from maxtext.utils import maxtext_utils

    settings: Any = jax.config
    settings.update(
        "jax_remove_size_one_mesh_axis_from_type", config.remove_size_one_mesh_axis_from_type
    )
    kind = AxisType.Explicit if config.shard_mode == ShardMode.EXPLICIT else AxisType.Auto
    names = config.mesh_axes
    given = devices if _is_tpu(devices[0]) else [_InSlice(device) for device in devices]
    placed = maxtext_utils.create_device_mesh(config, given)
    if given is not devices:
        placed = np.vectorize(lambda one: one.device, otypes=[object])(placed)
    return Mesh(placed, names, axis_types=(kind,) * len(names))


class _InSlice:
    """A GPU as a job sees it: each host is a slice, which the devices of a topology don't say."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self.slice_index = _slice_index(device)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.device, name)


def _slice_index(device: Any) -> int:
    return int(device.slice_index if _is_tpu(device) else device.process_index)


def _is_tpu(device: Any) -> bool:
    return bool(device.platform == "tpu")


class _Step:
    """A jitted function that is traced inside MaxText's mesh and rules for axes."""

    __name__ = "train_step"

    def __init__(self, jitted: Any, inside: Callable[[], Any], named: Mapping[str, Any]) -> None:
        self._jitted = jitted
        self._inside = inside
        self._named = named

    def __call__(self, *arguments: Any) -> Any:
        with self._inside():
            return self._jitted(*arguments, **self._named)

    def trace(self, *arguments: Any) -> Any:
        """As that of a jitted function."""
        with self._inside():
            return self._jitted.trace(*arguments, **self._named)
