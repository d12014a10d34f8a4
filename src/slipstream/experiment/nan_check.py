"""Do a step's results stay numbers?  If not, the receipt says from which call and program on.

Only single floats are looked at, a loss or a norm: they cost one small copy, while the comparison
waits for the step anyway.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any


class NanCheck:
    """Looks at the results of each step, until one that was a number is none any more."""

    def __init__(self) -> None:
        self._is_over = False
        self._seen = 0
        """steps whose results were numbers"""

    def note(self, call: int, arm: str, result: Any) -> str | None:
        """A sentence for the receipt, once."""
        if self._is_over or are_finite(result):
            self._seen += 1
            return None
        self._is_over = True
        if not self._seen:
            # It was so before anything but the original program had run.
            return None
        return (
            f"a result of the step was a number until call {call}, which the program {arm!r} ran, "
            "and is none from there on; whether the job alone comes to that, a run without "
            "Slipstream tells"
        )


def are_finite(result: Any) -> bool:
    """Whether all single floats among the results of a program are numbers, as far as we see."""
    try:
        return all(math.isfinite(value) for value in _floats(result))
    except RuntimeError:
        # JAX was told to copy nothing to the host (jax.transfer_guard), so we see nothing.
        return True


def _floats(result: Any) -> Iterable[float]:
    import jax
    import jax.numpy as jnp
    import numpy as np

    for value in result if isinstance(result, (list, tuple)) else ():
        if not isinstance(value, jax.Array) or value.size != 1:
            continue
        if jnp.issubdtype(value.dtype, jnp.floating) and value.addressable_shards:
            yield float(np.asarray(jax.device_get(value.addressable_data(0))).reshape(()))
