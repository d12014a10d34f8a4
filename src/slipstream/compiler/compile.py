"""Compile for any machine without its devices: XLA's real compilers, in a separate process."""

from __future__ import annotations

import os
from typing import Any

from slipstream.compiler.archive import read_archived
from slipstream.compiler.compilation import Compilation
from slipstream.compiler.failures import CompileFailed
from slipstream.compiler.options import Flags, split_flags
from slipstream.compiler.order import Order, read_order
from slipstream.compiler.session import CompilerSession, Costs
from slipstream.compiler.targets import identify
from slipstream.compiler.workers import Progress
from slipstream.errors import BadInput
from slipstream.machines.machine import Machine
from slipstream.profile.program import Program

__all__ = ["compilation", "compile", "compiler", "machine_of"]

DEFAULT_MACHINE = "8xH200"


def compile(
    target: Any,
    args: Any = None,
    *,
    on: str | Machine = DEFAULT_MACHINE,
    flags: Flags = None,
    costs: Costs = None,
    order: Order | str | os.PathLike[str] | None = None,
    autotuning: str | os.PathLike[str] | None = None,
) -> Program:
    """The optimised, scheduled program of a target on a machine; `compilation` returns more."""
    return compilation(
        target, args, on=on, flags=flags, costs=costs, order=order, autotuning=autotuning
    ).program


def compilation(
    target: Any,
    args: Any = None,
    *,
    on: str | Machine = DEFAULT_MACHINE,
    flags: Flags = None,
    costs: Costs = None,
    order: Order | str | os.PathLike[str] | None = None,
    autotuning: str | os.PathLike[str] | None = None,
    target_config: str | None = None,
    use_gpu: bool = False,
    progress: Progress | None = None,
    program_only: bool = False,
) -> Compilation:
    """Compile a target: a function and its arguments, `train.py:build`, StableHLO or HLO.

    `target_config` replaces the built-in configuration of the machine's GPU (text of a
    GpuTargetConfigProto). With `use_gpu`, it and autotuning come from the local GPU. For TPUs,
    libtpu must be installed. With `program_only`, no machine code is made. An `order`, or the file
    of one, comes from `schedule`.
    """
    if order is not None and costs is not None:
        raise BadInput("an order leaves nothing for costs to decide; pass one of the two")
    wanted = order if order is None or isinstance(order, Order) else read_order(order)
    with compiler(
        target,
        args,
        on=on,
        autotuning=autotuning,
        target_config=target_config,
        use_gpu=use_gpu,
        progress=progress,
        program_only=program_only,
    ) as session:
        if wanted is not None:
            return in_order(session, wanted, flags)
        return session.compile(flags=flags, costs=costs)


def in_order(session: CompilerSession, order: Order, flags: Flags = None) -> Compilation:
    """Compile with an order and the flags that it was made with.

    BadInput if it is another program's or impossible, CompileFailed if XLA doesn't obey it.
    """
    every = {**order.flags, **split_flags(flags).all}
    if not order.sequences:  # XLA's own, or what it makes of costs
        found = session.compile(flags=every, costs=order.cost_table)
        order.check(found.program)
        return found
    source = session.scheduled(flags=every)
    order.check(source.program)
    made = session.compile(flags=every, order=order.sequences)
    if not order.is_obeyed(made.program, source.program):
        raise CompileFailed("XLA took the order, and compiled another", "refused")
    return made


def compiler(
    target: Any,
    args: Any = None,
    *,
    on: str | Machine = DEFAULT_MACHINE,
    autotuning: str | os.PathLike[str] | None = None,
    target_config: str | None = None,
    use_gpu: bool = False,
    progress: Progress | None = None,
    program_only: bool = False,
    reads_cache: bool = True,
) -> CompilerSession:
    """A session for several compiles of one target; use it in a `with` statement.

    With `program_only`, no machine code is made: its schedule and its memory are the same.
    """
    machine = machine_of(on)
    if machine.kind == "tpu" and (use_gpu or autotuning):
        raise BadInput(f"{machine.spec} has TPUs, which need no autotuning; omit the option")
    if isinstance(target, (str, os.PathLike)) and os.fspath(target).endswith(".zip"):
        archived = read_archived(os.fspath(target))
        target = archived.target
        # Arguments override what the archive recorded.
        if machine.kind == "gpu":
            target_config = target_config or archived.target_config
            autotuning = autotuning or archived.autotuning
    if use_gpu:
        from slipstream.compiler.local_gpu import check_same_model

        check_same_model(machine)
    config = target_config if target_config is not None else known_config(machine)
    return CompilerSession(
        identify(target, args, config),
        machine,
        config,
        autotuning=autotuning,
        use_gpu=use_gpu,
        progress=progress,
        program_only=program_only,
        reads_cache=reads_cache,
    )


def machine_of(on: str | Machine) -> Machine:
    """A machine by its spec."""
    if isinstance(on, Machine):
        return on
    from slipstream.machines.topology import machine

    return machine(on)


def known_config(machine: Machine) -> str:
    from slipstream.machines.targets import target_config

    return target_config(machine)
