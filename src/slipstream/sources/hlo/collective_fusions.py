"""Fusions of XLA:TPU that communicate, as the collectives that they are.

XLA:TPU writes a collective that runs beside compute as a chain of fusions, which pass its state on:

    async-collective-start.3 = fusion(x)      { all-gather(x) ─► AsyncCollectiveStart }
    fusion.460               = fusion(…, s0)  { x @ w, and all-gather(x) again: a part of it }
    fusion.465               = fusion(…, s1)  { … }
    async-collective-done.3  = fusion(s2)     { all-gather(x) ─► AsyncCollectiveDone }

The first becomes an `all-gather-start` and the last its `all-gather-done`; their `chain_id` tells
which belong together. Those between are compute. A fusion with a collective that is in no chain is
that collective: an all-reduce of which only a slice is kept is a reduce-scatter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from slipstream.profile.program import Collective, Computation, Instruction

START, DONE = "AsyncCollectiveStart", "AsyncCollectiveDone"
_STEP = '"async_collective_fusion_config"'
_SLICES = ("dynamic-slice", "slice")


def with_collective_fusions(computations: dict[str, Computation]) -> dict[str, Computation]:
    """The computations, with fusions that communicate as collectives; themselves if none does."""
    inside = {
        computation.name: found
        for computation in computations.values()
        if (found := _collective(computation)) is not None
    }
    if not inside:
        return computations
    return {name: _renamed(one, computations, inside) for name, one in computations.items()}


def _collective(computation: Computation) -> Instruction | None:
    for instruction in computation.instructions:
        if instruction.collective is not None:
            return instruction
    return None


def _renamed(
    computation: Computation,
    computations: Mapping[str, Computation],
    inside: Mapping[str, Instruction],
) -> Computation:
    changed = {}
    for instruction in computation.instructions:
        if instruction.opcode == "fusion" and instruction.called[:1] and not instruction.collective:
            collective = inside.get(instruction.called[0])
            if collective is not None:
                called = computations[instruction.called[0]]
                changed[instruction.name] = _as_collective(instruction, collective, called)
    if not changed:
        return computation
    instructions = tuple(changed.get(one.name, one) for one in computation.instructions)
    root = changed.get(computation.root.name, computation.root)
    return Computation(computation.name, instructions, root)


def _as_collective(fusion: Instruction, inner: Instruction, called: Computation) -> Instruction:
    assert inner.collective is not None
    target = called.root.custom_call_target
    chain = str(inner.attributes.get("chain_id", inner.collective.channel_id or inner.name))
    attributes = {**fusion.attributes, "chain_id": chain}
    if target == START:
        opcode = f"{inner.collective.kind}-start"
        return replace(
            fusion, opcode=opcode, collective=inner.collective, attributes=attributes, called=()
        )
    if target == DONE:
        opcode = f"{inner.collective.kind}-done"
        return replace(fusion, opcode=opcode, attributes=attributes, called=())
    if _STEP in inner.backend_config or "chain_id" in inner.attributes:
        return replace(fusion, attributes=attributes)
    return replace(fusion, collective=_whole(inner, inner.collective, called))


def _whole(inner: Instruction, collective: Collective, called: Computation) -> Collective:
    """What a fusion does with the collective in it."""
    users = called.users.get(inner.name, ())
    is_sliced = bool(users) and all(user.opcode in _SLICES for user in users)
    if collective.kind == "all-reduce" and is_sliced:
        return replace(collective, kind="reduce-scatter")
    return collective
