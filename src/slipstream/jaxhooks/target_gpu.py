"""Questions that JAX asks about the local GPU while it traces, answered for another GPU.

`jax.nn.dot_product_attention(implementation="cudnn")` asks for the version of cuDNN and for the
compute capability, and fails where neither is installed. Its lowering needs neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from slipstream.jaxhooks import private_api
from slipstream.jaxhooks.compat import JaxChanged, PrivatePart, warn_once


@contextmanager
def answering_for(target: tuple[int, int], cudnn: int) -> Iterator[None]:
    """Trace and lower as on a GPU of this compute capability, with this version of cuDNN.

    On a JAX that asks in another way, functions without cuDNN attention are lowered as before.
    """

    def at_least(capability: str) -> bool:
        return target >= _pair(capability)

    def equal(capability: str) -> bool:
        return target == _pair(capability)

    answers: dict[PrivatePart, Callable[..., Any]] = {
        private_api.CUDNN_VERSION: lambda: cudnn,
        private_api.CAPABILITY_AT_LEAST: at_least,
        private_api.CAPABILITY_EQUAL: equal,
    }
    try:
        own = {part: part.get() for part in answers}
    except JaxChanged as changed:
        warn_once(str(changed))
        own = {}
    try:
        for part in own:
            part.replace(answers[part])
        yield
    finally:
        for part, function in own.items():
            part.replace(function)


def _pair(capability: str) -> tuple[int, ...]:
    return tuple(int(number) for number in capability.split("."))
