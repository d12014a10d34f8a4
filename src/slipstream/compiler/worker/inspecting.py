"""Inspect a target's function without lowering it: its arguments, its trace, its batch."""

from __future__ import annotations

import math
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from slipstream.compiler.inspection import Inspection, StepWork
from slipstream.compiler.worker.gathers import HOST, received_bytes
from slipstream.compiler.worker.least_work import LeastWork, byte_size, least_work
from slipstream.compiler.worker.lowering import built_function, target_device, traced
from slipstream.jaxhooks.target_device import answering_for
from slipstream.jaxhooks.tracing import argument_shardings

TOKEN_TYPES = ("int32", "int64", "uint32", "uint16")


def inspect_built(
    build: Any,
    devices: list[Any],
    keywords: Mapping[str, Any],
    target_config: str,
    *,
    traces: bool,
    domain: int = 1,
) -> dict[str, Any]:
    """An Inspection, as JSON, of what a target's function returns.

    `domain` is the number of consecutive devices that need no network between them.
    """
    began = time.monotonic()
    with answering_for(target_device(target_config)):
        function, arguments = built_function(build, devices, keywords)
    found = _arguments_only(function, arguments, len(devices))
    if traces and not hasattr(function, "compiler_ir"):
        found = _traced(function, arguments, target_config, found, domain)
    answer = found.to_json()
    answer["seconds"] = time.monotonic() - began
    return answer


def _arguments_only(function: Any, arguments: tuple[Any, ...], most: int) -> Inspection:
    leaves, shardings = argument_shardings(function, arguments)
    devices = _device_count(shardings) or most
    sizes = [_on_one_device(*pair, devices) for pair in zip(leaves, shardings, strict=True)]
    return Inspection(devices, math.floor(sum(sizes)), is_traced=False)


def _traced(
    function: Any,
    arguments: tuple[Any, ...],
    target_config: str,
    untraced: Inspection,
    domain: int,
) -> Inspection:
    import jax

    found = traced(function, arguments, target_config)
    infos, (tree, _) = jax.tree.leaves(found.args_info), found.in_tree.children()
    _, shardings = argument_shardings(function, arguments)
    if len(shardings) != len(infos):  # a function that was traced before
        shardings = [None] * len(infos)
    outputs = jax.tree.leaves(found.out_info)
    devices = _device_count([*shardings, *(one.sharding for one in outputs)]) or untraced.devices
    sizes = [_on_one_device(*pair, devices) for pair in zip(infos, shardings, strict=True)]
    results = [_on_one_device(one, one.sharding, devices) for one in outputs]
    donated = [info.donated for info in infos]
    work = _least_work(found.jaxpr, donated, len(outputs))
    received, over_network = received_bytes(work.gathers, domain)
    used = [size if is_used else 0 for size, is_used in zip(sizes, work.is_used, strict=True)]
    is_state = _is_state(tree, infos, found.out_info)
    weights = [
        is_it and state and "float" in str(info.dtype)
        for is_it, state, info in zip(work.is_weight, is_state, infos, strict=True)
    ]

    def total(which: Sequence[bool], of: Sequence[float]) -> int:
        return math.floor(sum(size for size, is_it in zip(of, which, strict=True) if is_it))

    return Inspection(
        devices=devices,
        arguments_bytes=math.floor(sum(used)),
        is_traced=True,
        donated_bytes=math.ceil(sum(s for s, is_it in zip(used, donated, strict=True) if is_it)),
        outputs_bytes=math.floor(sum(results)),
        flops=work.flops,
        stacked_bytes=work.stacked_bytes,
        reusable_bytes=total(work.is_reusable, used),
        moved_bytes=total(work.is_read, used) + total(work.is_written, results),
        received_bytes=received,
        network_bytes=over_network,
        gradients_bytes=total(weights, used),
        work=_work(tree, infos, is_state),
    )


def _least_work(jaxpr: Any, donated: Sequence[bool], outputs: int) -> LeastWork:
    try:
        return least_work(jaxpr, donated)
    except (KeyError, AttributeError, TypeError, ValueError, IndexError):
        # Versions of JAX write jaxprs differently. Without bounds, combinations are compiled.
        print("the trace could not be analysed, so there are no bounds:", file=sys.stderr)
        traceback.print_exc()
        return LeastWork.unknown(jaxpr, outputs)


def _device_count(shardings: Sequence[Any]) -> int:
    return max((sharding.num_devices for sharding in shardings if sharding is not None), default=0)


def _on_one_device(value: Any, sharding: Any, devices: int) -> float:
    """Bytes; without a sharding, of the smallest piece that XLA could cut."""
    if not hasattr(value, "dtype"):
        return 0.0  # a number of Python
    if sharding is None:
        return byte_size(value.shape, value.dtype) / devices
    if sharding.memory_kind in HOST:
        return 0.0
    return byte_size(sharding.shard_shape(value.shape), value.dtype)


# The batch: arguments that are not state.


def _is_state(tree: Any, infos: Sequence[Any], results: Any) -> list[bool]:
    """Of each leaf: whether its argument is donated, or returned with other values."""
    import jax

    returned = {_signature(one) for one in (results, *_members(results))}
    found: list[bool] = []
    for child in tree.children():
        leaves = list(infos[len(found) : len(found) + child.num_leaves])
        whole = jax.tree.unflatten(child, leaves)
        is_state = any(leaf.donated for leaf in leaves) or _signature(whole) in returned
        found += [is_state] * len(leaves)
    return found


def _work(tree: Any, infos: Sequence[Any], is_state: Sequence[bool]) -> StepWork:
    batch: list[tuple[int, Any]] = []
    place = 0
    for number, child in enumerate(tree.children()):
        leaves = range(place, place + child.num_leaves)
        place += child.num_leaves
        arrays = [infos[n] for n in leaves if infos[n].shape and not _is_key(infos[n])]
        # Everything in a batch has one leading dimension; weights don't.
        if not any(is_state[n] for n in leaves) and len({leaf.shape[0] for leaf in arrays}) == 1:
            batch += [(number, leaf) for leaf in arrays]
    if not batch:
        return StepWork(text="no argument looks like a batch: all are state, keys or numbers")
    text = ", ".join(f"argument {number}, {_text(leaf)}" for number, leaf in batch[:3])
    text += f" and {len(batch) - 3} more" if len(batch) > 3 else ""
    samples = {leaf.shape[0] for _, leaf in batch}
    tokens = [math.prod(leaf.shape) for _, leaf in batch if _is_tokens(leaf)]
    return StepWork(samples.pop() if len(samples) == 1 else None, max(tokens, default=None), text)


def _members(results: Any) -> list[Any]:
    if isinstance(results, Mapping):
        return list(results.values())
    return list(results) if isinstance(results, (tuple, list)) else []


def _signature(tree: Any) -> tuple[Any, ...]:
    import jax

    leaves, structure = jax.tree.flatten(tree)
    return structure, tuple((leaf.shape, str(leaf.dtype)) for leaf in leaves)


def _is_key(leaf: Any) -> bool:
    """Whether it is a key for random numbers."""
    return str(leaf.dtype).startswith("key<") or (leaf.shape, str(leaf.dtype)) == ((2,), "uint32")


def _is_tokens(leaf: Any) -> bool:
    return len(leaf.shape) == 2 and str(leaf.dtype) in TOKEN_TYPES


def _text(leaf: Any) -> str:
    return f"{leaf.dtype}[{','.join(map(str, leaf.shape))}]"
