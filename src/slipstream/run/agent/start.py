"""Starts the agent in a job that `slipstream run` started, when the job imports jax."""

from __future__ import annotations

import atexit
import logging
import os
import sys
from pathlib import Path

from slipstream.compiler.worker.lowering import target_device
from slipstream.errors import Missing
from slipstream.jaxhooks.compat import Feature, JaxChanged
from slipstream.jaxhooks.distributed import override_initialize
from slipstream.jaxhooks.dry_run import DryRun
from slipstream.jaxhooks.hooks import HOOKS
from slipstream.jaxhooks.missing_gpu import shorten_tracebacks
from slipstream.jaxhooks.private_api import exclude_from_tracebacks, require
from slipstream.jaxhooks.profiler import before_every_session
from slipstream.run.agent.agent import Agent
from slipstream.run.agent.request import LAYOUT, read_request
from slipstream.run.agent.status import log_to
from slipstream.run.job_python import install_command, missing_packages

log = logging.getLogger("slipstream")


def start(path: str) -> Agent:
    """Start the agent in this process; Missing if it lacks packages that the agent needs."""
    missing = missing_packages()
    if missing:
        install = install_command(sys.executable)
        raise Missing(f"the job's Python has no {' and no '.join(missing)}; type: {install}")
    request = read_request(path)
    agent = Agent(request)
    log_to(Path(request.folder) / "agent.log")
    _hide_from_tracebacks()
    shorten_tracebacks()
    try:
        _hook_into_jax(agent)
    except JaxChanged as changed:
        HOOKS.uninstall()
        agent.give_up(str(changed))
        return agent
    os.register_at_fork(after_in_child=agent.leave)
    atexit.register(agent.at_exit)
    return agent


def _hook_into_jax(agent: Agent) -> None:
    """JaxChanged, before anything is hooked, if a private part of JAX is not as expected."""
    request = agent.request
    require(
        Feature.WATCHING, Feature.STABLEHLO, Feature.RECOMPILING, Feature.GIVING_WAY,
        *([Feature.LAYOUTS] if request.mode == LAYOUT else []),
    )  # fmt: skip
    if request.mode == LAYOUT:
        override_initialize(request.layout)
    if request.target:
        agent.run_dry(DryRun(target_device(request.target)))
    HOOKS.add(agent)
    before_every_session(agent.give_way)


def _hide_from_tracebacks() -> None:
    """Keep our frames out of the job's tracebacks, as JAX does with its own."""
    try:
        exclude_from_tracebacks(Path(__file__).parents[2])
    except JaxChanged as changed:
        log.warning("slipstream: %s", changed)
