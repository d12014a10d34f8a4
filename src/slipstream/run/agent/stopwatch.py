"""Inside a job whose layout is timed: its place among the processes."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any


def override_initialize(layout: Mapping[str, Any]) -> None:
    """Whatever the job tells `jax.distributed.initialize`, this is where it runs."""
    outside: Any = import_module("jax.distributed")
    inside: Any = import_module("jax._src.distributed")
    real = inside.initialize

    def initialize(*arguments: Any, **named: Any) -> None:
        devices = layout["devices"]
        real(
            coordinator_address=layout["coordinator"],
            num_processes=layout["processes"],
            process_id=layout["process"],
            **({"local_device_ids": devices} if devices is not None else {}),
        )

    initialize.__doc__, initialize.__name__ = real.__doc__, "initialize"
    outside.initialize = inside.initialize = initialize
