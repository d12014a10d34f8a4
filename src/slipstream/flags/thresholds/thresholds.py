"""Combine thresholds computed from the size of a model's layers.

XLA combines collectives up to a threshold, by the size of their results: the gathered array, or one
device's share of the scattered one.  A threshold of one layer gives one all-gather and one
reduce-scatter per layer; a smaller one splits layers, a larger one makes a layer wait for the next.

    weights of one layer            ─► all-gather threshold       rounded up to 32 MiB
    gradients of one layer          ─► reduce-scatter threshold   rounded up to 32 MiB
    16 MiB, 32 MiB … all gradients  ─► all-reduce thresholds to try
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slipstream.errors import BadInput
from slipstream.flags.thresholds.parameter_trees import Sharding, weights_of_tree
from slipstream.flags.thresholds.weights import Weight, weights_of
from slipstream.profile.program import Program
from slipstream.profile.shapes import BITS
from slipstream.units import format_bytes

ALL_GATHER = "xla_gpu_all_gather_combine_threshold_bytes"
REDUCE_SCATTER = "xla_gpu_reduce_scatter_combine_threshold_bytes"
ALL_REDUCE = "xla_gpu_all_reduce_combine_threshold_bytes"

MIB = 1 << 20
MILLION, BILLION = 10**6, 10**9
STEP_BYTES = 32 * MIB
"""thresholds are multiples of this, so that small arrays such as biases don't change them"""
FIRST_RUNG_BYTES = 16 * MIB
"""the smallest all-reduce threshold to try, from the guide"""


@dataclass(frozen=True)
class ExplainedSize:
    """A size, and a sentence on how it was computed."""

    bytes: int
    basis: str


@dataclass(frozen=True)
class Thresholds:
    """The size of a layer, and the combine thresholds computed from it."""

    source: str
    layers: int | None
    """None if no layers were found: the sizes are then of the whole model"""
    layer_weights: ExplainedSize
    layer_gradients: ExplainedSize
    weights_by_layer: ExplainedSize
    """the size of all weights divided by the number of layers"""
    as_the_guide: ExplainedSize
    """computed as in the guide: the nominal model size divided by the layers, in whole millions"""
    all_gradients: ExplainedSize
    all_gather: ExplainedSize
    reduce_scatter: ExplainedSize
    all_reduce: tuple[int, ...]
    """thresholds to try, smallest first"""
    all_reduce_basis: str
    notes: tuple[str, ...] = ()

    @property
    def flags(self) -> Mapping[str, int]:
        """The two flags with a definite value; all-reduce thresholds must be tried."""
        return {ALL_GATHER: self.all_gather.bytes, REDUCE_SCATTER: self.reduce_scatter.bytes}

    @property
    def xla_flags(self) -> str:
        """The same flags as a string for `XLA_FLAGS`."""
        return " ".join(f"--{name}={value}" for name, value in self.flags.items())


def thresholds(program: Program) -> Thresholds:
    """Combine thresholds for a compiled training step."""
    weights = weights_of(program)
    if not weights:
        raise BadInput(
            f"{program.name}: none of its {len(program.entry.parameters)} parameters looks like a "
            "weight; expected a training step whose arguments are a tree, such as params['w']; in "
            "Python, use slipstream.flags.thresholds.thresholds.thresholds_of_params"
        )
    gradient_type, basis = _gradient_type(program)
    bits = BITS[gradient_type] if gradient_type else None
    notes = (*_present(program), *_sharding_notes(weights))
    return _propose(program.name, weights, bits, basis, notes)


def thresholds_of_params(
    params: Any,
    *,
    dtype: str = "bfloat16",
    gradient_dtype: str | None = None,
    layers: int | None = None,
    specs: Any = None,
    mesh: Mapping[str, int] | None = None,
    gathered_over: Sequence[str] = ("data", "fsdp"),
) -> Thresholds:
    """Combine thresholds for a parameter tree: arrays, shapes, or the result of jax.eval_shape.

    `layers` is the number of layers in stacked arrays, if it can't be detected.  `specs` is a tree
    of PartitionSpecs (or tuples of axis names) and `mesh` the sizes of the axes: weights are
    gathered over `gathered_over` and stay sharded along all other axes.
    """
    sharding = Sharding(mesh or {}, frozenset(gathered_over))
    weights = weights_of_tree(params, dtype, layers, specs, sharding)
    bits = None
    basis = "gradients have the type of the weights"
    if gradient_dtype is not None:
        (example,) = weights_of_tree({"": (8,)}, gradient_dtype)
        bits, basis = example.bytes, f"gradients are {gradient_dtype}"
    return _propose("parameters", weights, bits, basis, tuple(_sharding_notes(weights)))


# From weights to thresholds.


def _propose(
    source: str, weights: list[Weight], bits: int | None, gradients: str, notes: tuple[str, ...]
) -> Thresholds:
    largest, layer = _layer(weights)
    count = _count(weights)
    total = sum(weight.bytes for weight in weights)
    spread = total // count if count else total
    layer_bytes = sum(weight.layer_bytes for weight in layer)
    layer_gradients = sum(_gradient(weight, bits) // weight.stacked for weight in layer)
    all_gradients = sum(_gradient(weight, bits) for weight in weights)
    spread_gradients = all_gradients // count if count else all_gradients
    gathered = max(layer_bytes, spread)
    scattered = max(layer_gradients, spread_gradients)
    return Thresholds(
        source,
        layers=count or None,
        layer_weights=ExplainedSize(layer_bytes, _layer_basis(largest, layer, count)),
        layer_gradients=ExplainedSize(
            layer_gradients, f"one gradient per weight of the layer; {gradients}"
        ),
        weights_by_layer=ExplainedSize(spread, _spread_basis(total, count)),
        as_the_guide=_as_the_guide(weights, count),
        all_gradients=ExplainedSize(all_gradients, f"one gradient per weight; {gradients}"),
        all_gather=ExplainedSize(_rounded(gathered), _threshold_basis("weights", gathered, count)),
        reduce_scatter=ExplainedSize(
            _rounded(scattered),
            _threshold_basis("gradients", scattered, count)
            + "; more than enough, since XLA counts only one device's share of a reduce-scatter",
        ),
        all_reduce=_ladder(all_gradients),
        all_reduce_basis=(
            f"powers of two from 16 MiB until all {format_bytes(all_gradients)} of gradients fit: "
            "large ones use the network better, small ones overlap better, so measure"
        ),
        notes=notes,
    )


def _layer(weights: list[Weight]) -> tuple[str, list[Weight]]:
    """The name and the weights of the largest layer; all weights if there are no layers."""
    layers: dict[str, list[Weight]] = defaultdict(list)
    for weight in weights:
        if weight.key:
            layers[weight.key].append(weight)
    if not layers:
        return "", weights
    name = max(layers, key=lambda key: sum(weight.layer_bytes for weight in layers[key]))
    return name, layers[name]


def _as_the_guide(weights: list[Weight], count: int) -> ExplainedSize:
    """The size of a layer as the guide computes it for Llama 2 7B, with its rounding.

    7 billion weights / 32 layers ~ 218 million each, 2 bytes each = 436 MB.
    """
    elements = sum(weight.elements for weight in weights)
    width = sum(weight.bytes for weight in weights) / elements
    nominal, name = _nominal(elements)
    each = nominal // (count or 1)
    each -= each % MILLION if each > MILLION else 0
    layers = f"{count} layers" if count > 1 else "1 layer"
    basis = (
        f"as in the guide: {name} weights with embeddings ({elements:,} rounded), over {layers}, "
        f"{each / MILLION:.3g} million each, times {width:.3g} bytes"
    )
    return ExplainedSize(round(each * width), basis)


def _nominal(elements: int) -> tuple[int, str]:
    """The nominal size of a model: 7 billion for 6.74 billion, 125 million for 124.6 million."""
    for unit, name in ((BILLION, "billion"), (MILLION, "million")):
        if elements >= unit:
            return round(elements / unit) * unit, f"{round(elements / unit)} {name}"
    return elements, f"{elements:,}"


def _count(weights: list[Weight]) -> int:
    """The number of layers, without numbered parts of negligible size."""
    sizes: dict[str, int] = defaultdict(int)
    times: dict[str, int] = {}
    for weight in weights:
        if weight.key:
            sizes[weight.key] += weight.layer_bytes
            times[weight.key] = weight.stacked
    least = max(sizes.values(), default=0) / 10
    return sum(times[key] for key, size in sizes.items() if size >= least)


def _gradient(weight: Weight, bits: int | None) -> int:
    return weight.bytes if bits is None else weight.elements * bits // 8


def _rounded(size: int) -> int:
    return -(-size // STEP_BYTES) * STEP_BYTES


def _ladder(total: int) -> tuple[int, ...]:
    rungs = [FIRST_RUNG_BYTES]
    while rungs[-1] < total:
        rungs.append(2 * rungs[-1])
    return tuple(rungs)


# Explanations.


def _layer_basis(name: str, layer: list[Weight], count: int) -> str:
    arrays = f"{len(layer)} arrays" if len(layer) != 1 else "1 array"
    if not count:
        return (
            f"no layers found (no stacked arrays, no numbers in names): all {arrays} of the model"
        )
    if layer[0].stacked > 1:
        return (
            f"{arrays}, each with {layer[0].stacked} stacked layers (scan), divided by their number"
        )
    return f"the {arrays} of {name}, the largest of {count} layers"


def _spread_basis(total: int, count: int) -> str:
    if not count:
        return f"all weights, {format_bytes(total)}"
    return f"all weights, {format_bytes(total)} with embeddings, over {count} layers"


def _threshold_basis(what: str, size: int, count: int) -> str:
    scope = (
        "one layer and an equal share of the weights outside layers" if count else "the whole model"
    )
    return f"fits the {what} of {scope}, {format_bytes(size)}, rounded up to 32 MiB"


def _gradient_type(program: Program) -> tuple[str, str]:
    """The type in which most gradient bytes are reduced."""
    sizes: dict[str, int] = defaultdict(int)
    for instruction in program.runnable:
        collective = instruction.collective
        if collective is None or collective.kind not in ("reduce-scatter", "all-reduce"):
            continue
        for operand in program.operands(instruction):
            if operand.shape.is_float and operand.shape.dims:
                sizes[operand.shape.dtype] += operand.shape.bytes
    if not sizes:
        return "", "the program reduces none, so they are assumed to have the type of the weights"
    largest = max(sizes, key=lambda dtype: sizes[dtype])
    return largest, f"the program reduces them in {largest}"


def _present(program: Program) -> list[str]:
    """The collectives of the program as compiled."""
    sizes: dict[str, list[int]] = defaultdict(list)
    for instruction in program.runnable:
        collective = instruction.collective
        is_inner = instruction.is_done or program.starter(instruction.name) is not None
        if collective is not None and not is_inner:
            sizes[collective.kind].append(collective.bytes)
    order = ("all-gather", "reduce-scatter", "all-reduce")
    if not any(sizes[kind] for kind in order):
        return [
            "the program has no collectives to combine, so these thresholds have no effect on it"
        ]
    if not sizes["all-gather"] and not sizes["reduce-scatter"]:
        return [
            "the program has only all-reduces, so the other two thresholds have no effect on it"
        ]
    found = [
        f"the program has {len(sizes[kind])} {kind}{'s' if len(sizes[kind]) > 1 else ''}, "
        f"the largest of {format_bytes(max(sizes[kind]))}"
        for kind in order
        if sizes[kind]
    ]
    return [
        *found,
        "the thresholds are meant to put a layer's arrays into one collective; XLA combines only "
        "arrays of one type, group and loop: see what it makes of them with slipstream tune",
    ]


def _sharding_notes(weights: list[Weight]) -> list[str]:
    _, layer = _layer(weights)
    notes = []
    by_dimension: dict[int, int] = defaultdict(int)
    for weight in layer:
        if weight.is_gathered and weight.dimension is not None:
            by_dimension[weight.dimension] += weight.layer_bytes
    if len(by_dimension) > 1:
        parts = ", ".join(
            f"{format_bytes(size)} along dimension {dim}"
            for dim, size in sorted(by_dimension.items())
        )
        notes.append(
            f"a layer is gathered along different dimensions ({parts}): keep "
            "xla_gpu_enable_all_gather_combine_by_dim false, or they are not combined"
        )
    if len({weight.groups for weight in layer if weight.is_gathered}) > 1:
        notes.append(
            "a layer is gathered over different groups of devices: collectives of different "
            "groups are never combined, whatever the threshold"
        )
    return notes
