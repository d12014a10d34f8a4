"""The memory that XLA may plan a program for a GPU with.

    in a job          the pool of JAX's allocator: jaxlib's client passes its size to each compile
    without a GPU     80% of the device, XLA's own guess, since there is no allocator to ask

XLA recomputes values, and hides less, where temporaries come near it.  So a program is compiled
here with the pool that its job will have: the share of the GPU that the environment states, or that
JAX takes by default.
"""

from __future__ import annotations

from collections.abc import Mapping

VARIABLES = ("XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_CLIENT_MEM_FRACTION")
JAX_SHARE = 0.75
"""of the GPU, if neither variable is set"""
PLAN_SHARE = 0.95
"""what plans suppose and their measurements set: the default is too little for many choices"""
XLA_SHARE = 0.8
"""what XLA plans with if it is not told the size of a pool"""
_ALLOCATOR = "XLA_PYTHON_CLIENT_ALLOCATOR"
_WITHOUT_POOL = "platform"


def pool_share(environment: Mapping[str, str], default: float = JAX_SHARE) -> float | None:
    """The share of a GPU that JAX's allocator takes; None if it takes none, or can't start."""
    if environment.get(_ALLOCATOR, "").lower() == _WITHOUT_POOL:
        return None
    text = next(filter(None, map(environment.get, VARIABLES)), None)
    try:
        share = default if text is None else float(text)
    except ValueError:
        return None
    return share if 0 < share <= 1 else None
