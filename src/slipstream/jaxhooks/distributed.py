"""JAX's coordination service, and a process's place among the others."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from slipstream.jaxhooks import private_api


def coordination_client() -> Any | None:
    """The client of JAX's coordination service; None before `jax.distributed.initialize`."""
    private_api.COORDINATION_CLIENT.get()
    return private_api.GLOBAL_STATE.get().client


def override_initialize(layout: Mapping[str, Any]) -> None:
    """Whatever the job tells `jax.distributed.initialize`, this is where it runs."""
    real = private_api.INITIALIZE.get()

    def initialize(*arguments: Any, **named: Any) -> None:
        devices = layout["devices"]
        real(
            coordinator_address=layout["coordinator"],
            num_processes=layout["processes"],
            process_id=layout["process"],
            **({"local_device_ids": devices} if devices is not None else {}),
        )

    initialize.__doc__, initialize.__name__ = real.__doc__, "initialize"
    public: Any = import_module("jax.distributed")
    public.initialize = initialize
    private_api.INITIALIZE.replace(initialize)
