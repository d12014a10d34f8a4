"""What a step gives back, kept and compared: two programs that compute the same are close.

Of a job that is launched anew for each candidate, the results of the step's first call are kept, as
far as they are small: they come from the same start in every run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slipstream.writing import atomic_write

MOST_BYTES = 64 << 20
"""of results that a run keeps: the smallest, the loss among them"""
FILE = "results.npz"


def difference(expected: Any, found: Any) -> float:
    """The largest error, against the largest value; infinite where only one is a number."""
    import numpy as np

    expected, found = _real(expected), _real(found)
    if expected.shape != found.shape:
        return math.inf
    finite = np.isfinite(expected)
    if not np.array_equal(expected[~finite], found[~finite], equal_nan=True):
        return math.inf
    expected, found = expected[finite], found[finite]
    if not np.isfinite(found).all():
        return math.inf
    scale = float(np.max(np.abs(expected), initial=0.0)) or 1.0
    return float(np.max(np.abs(expected - found), initial=0.0)) / scale


def _real(values: Any) -> Any:
    import numpy as np

    found = np.asarray(values)
    if found.dtype.kind == "c":
        found = np.stack([found.real, found.imag])
    return found.astype(np.float64)


def small_results(results: Any) -> dict[str, Any] | None:
    """Results by their place among all of them, on the host; the largest are left out.

    None where they can't be had: what failed on the device, the job will meet itself.
    """
    import jax

    try:
        with jax.transfer_guard("allow"):
            return _small(results)
    except RuntimeError:
        return None


def _small(results: Any) -> dict[str, Any]:
    import jax

    leaves = enumerate(leaf for leaf in jax.tree.leaves(results) if _is_plain(leaf))
    kept: dict[str, Any] = {}
    left = MOST_BYTES
    for number, leaf in sorted(leaves, key=lambda pair: int(pair[1].nbytes)):
        own = _on_host(leaf)
        if own is None or own.nbytes > left:
            break
        left -= own.nbytes
        kept[str(number)] = own
    return kept


def _is_plain(leaf: Any) -> bool:
    """Keys of random numbers, say, are no numbers."""
    import jax

    types: Any = jax.dtypes
    return hasattr(leaf, "nbytes") and not types.issubdtype(leaf.dtype, types.extended)


def _on_host(leaf: Any) -> Any:
    """An array, or the part of it that lies on the first device of this process."""
    import numpy as np

    shards = getattr(leaf, "addressable_shards", None)
    value = leaf if shards is None else (shards[0].data if shards else None)
    if value is None or int(value.nbytes) > MOST_BYTES:
        return None
    found = np.asarray(value)
    # Files of numpy don't have the small floats of machine learning.
    return found if found.dtype.kind in "biufc" else found.astype(np.float32)


def write_results(folder: Path, results: Mapping[str, Any]) -> None:
    import numpy as np

    with atomic_write(folder / FILE) as temporary, temporary.open("wb") as file:
        np.savez(file, **results)


def read_results(folder: Path) -> dict[str, Any] | None:
    """What `write_results` wrote; None where a run kept nothing."""
    import numpy as np

    try:
        with np.load(folder / FILE) as found:
            return {name: found[name] for name in found.files}
    except (OSError, ValueError):
        return None


def largest_difference(expected: dict[str, Any], found: dict[str, Any]) -> float:
    """Of all results that both have; infinite where they don't have the same."""
    if expected.keys() != found.keys():
        return math.inf
    return max((difference(expected[name], found[name]) for name in expected), default=0.0)
