"""Combine thresholds worth trying: powers of two around the size of one layer.

Below the smallest array of a layer nothing is combined; beyond a few layers everything is. The grid
covers the range in between, and the value that `flags thresholds` proposes for one layer.
"""

from __future__ import annotations

from slipstream.flags.thresholds.thresholds import MIB
from slipstream.tune.space.program_traits import ProgramTraits

MOST_LAYERS = 4
"""a larger threshold combines data needed late with data needed soon"""
LEAST_BYTES, MOST_BYTES = MIB, 4096 * MIB
MOST_VALUES = 8


def threshold_values(kind: str, traits: ProgramTraits) -> tuple[str, ...]:
    """Powers of two, and the proposal for one layer if the model's layers are known."""
    layer = layer_bytes(kind, traits)
    sizes = [size for size in counted_sizes(kind, traits) if size]
    if not sizes and layer is None:
        return ()
    largest = layer or max(sizes)
    smallest = min([size for size in sizes if size >= largest / 64] or [largest])
    low = max(_power_below(smallest), LEAST_BYTES)
    high = min(_power_above(MOST_LAYERS * largest), MOST_BYTES)
    powers = _powers(low, high)
    # Keep both ends (nothing combined, everything combined); thin out the middle.
    while len(powers) > MOST_VALUES:
        powers = sorted({powers[0], powers[-1], *powers[::2]})
    proposed = _proposed(kind, traits)
    return tuple(str(size) for size in sorted({*powers, *([proposed] if proposed else [])}))


def counted_sizes(kind: str, traits: ProgramTraits) -> list[int]:
    """Sizes of the collectives of a kind, as XLA counts them: reduce-scatters by their result."""
    share = max(traits.devices, 1) if kind == "reduce-scatter" else 1
    return [size // share for size in traits.collectives.get(kind, ())]


def layer_bytes(kind: str, traits: ProgramTraits) -> int | None:
    """Bytes of one layer in collectives of a kind, as XLA compares them with the threshold."""
    layers = traits.layers
    if layers is None or layers.layers is None:
        return None
    if kind == "reduce-scatter":
        # XLA counts the result: one device's share.
        return max(layers.layer_gradients.bytes // max(traits.devices, 1), 1)
    return layers.layer_gradients.bytes if kind == "all-reduce" else layers.layer_weights.bytes


def _proposed(kind: str, traits: ProgramTraits) -> int | None:
    layers = traits.layers
    if layers is None or layers.layers is None:
        return None
    figures = {"all-gather": layers.all_gather, "reduce-scatter": layers.reduce_scatter}
    return figures[kind].bytes if kind in figures else None


def _powers(low: int, high: int) -> list[int]:
    found = [low]
    while found[-1] < high:
        found.append(2 * found[-1])
    return found


def _power_below(size: int) -> int:
    return 1 << max(size.bit_length() - 1, 0)


def _power_above(size: int) -> int:
    return 1 << (size - 1).bit_length()
