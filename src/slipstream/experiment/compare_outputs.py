"""Do two programs compute the same? Results of a step, saved and compared.

Where a job is launched again for each candidate, the small results of the step's first call are
saved: every run computes them from the same initial state.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipstream.jaxhooks.jax_types import Results
from slipstream.writing import atomic_write

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike

MAX_BYTES = 64 << 20
"""of results that a run saves: the smallest first, so the loss is among them"""
FILE = "results.npz"


def difference(expected: ArrayLike, found: ArrayLike) -> float:
    """The largest error relative to the largest value; infinite where only one is finite."""
    import numpy as np

    before, after = _real(expected), _real(found)
    if before.shape != after.shape:
        return math.inf
    finite = np.isfinite(before)
    if not np.array_equal(before[~finite], after[~finite], equal_nan=True):
        return math.inf
    before, after = before[finite], after[finite]
    if not np.isfinite(after).all():
        return math.inf
    scale = float(np.max(np.abs(before), initial=0.0)) or 1.0
    return float(np.max(np.abs(before - after), initial=0.0)) / scale


def _real(values: ArrayLike) -> np.ndarray:
    import numpy as np

    found = np.asarray(values)
    if found.dtype.kind == "c":
        found = np.stack([found.real, found.imag])
    return found.astype(np.float64)


def small_results(results: Results) -> dict[str, np.ndarray] | None:
    """Copies of the results on the host, by their index; the largest are left out.

    None where they can't be copied: the job will see the device's error itself.
    """
    import jax

    try:
        with jax.transfer_guard("allow"):
            return _small(results)
    except RuntimeError:
        return None


def _small(results: Results) -> dict[str, np.ndarray]:
    import jax

    leaves = enumerate(leaf for leaf in jax.tree.leaves(results) if _is_plain(leaf))
    kept: dict[str, np.ndarray] = {}
    left = MAX_BYTES
    for number, leaf in sorted(leaves, key=lambda pair: int(pair[1].nbytes)):
        own = _on_host(leaf)
        if own is None or own.nbytes > left:
            break
        left -= own.nbytes
        kept[str(number)] = own
    return kept


def _is_plain(leaf: Any) -> bool:
    """Whether it is an array of numbers; PRNG keys are not."""
    import jax

    types: Any = jax.dtypes
    return hasattr(leaf, "nbytes") and not types.issubdtype(leaf.dtype, types.extended)


def _on_host(leaf: Any) -> np.ndarray | None:
    """An array, or its shard on the first device of this process; None if too large."""
    import numpy as np

    shards = getattr(leaf, "addressable_shards", None)
    value = leaf if shards is None else (shards[0].data if shards else None)
    if value is None or int(value.nbytes) > MAX_BYTES:
        return None
    found = np.asarray(value)
    # .npz files have no bfloat16 or float8.
    return found if found.dtype.kind in "biufc" else found.astype(np.float32)


def write_results(folder: Path, results: Mapping[str, Any]) -> None:
    import numpy as np

    with atomic_write(folder / FILE) as temporary, temporary.open("wb") as file:
        np.savez(file, **results)


def read_results(folder: Path) -> dict[str, np.ndarray] | None:
    """What `write_results` wrote; None where a run saved nothing."""
    import numpy as np

    try:
        with np.load(folder / FILE) as found:
            return {name: found[name] for name in found.files}
    except (OSError, ValueError):
        return None


def largest_difference(
    expected: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray]
) -> float:
    """The largest difference of all results; infinite where the two sets don't match."""
    if expected.keys() != found.keys():
        return math.inf
    return max((difference(expected[name], found[name]) for name in expected), default=0.0)
