"""How calls of libraries are divided among devices, recorded in one process, replayed in another.

XLA asks Python while it partitions a program: `jax.custom_partitioning`, as of cuDNN attention, has
rules in Python, and its calls only hold the address of them. A program that is compiled in another
process therefore holds the answers instead:

    the job        CustomSPMDPartitioning("1402…")   compiled for its CPU: JAX's rules answer
    as saved       Slipstream.Partitioned("{…}")     the answer: shardings, and the divided call
    the compiler   Slipstream.Partitioned("{…}")     answered with it

Shardings are propagated before anybody is asked, by the same rules for every platform.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from functools import cache, partial
from typing import Any

from slipstream.jaxhooks import private_api
from slipstream.jaxhooks.compat import Feature

ASKING, ANSWERED = "CustomSPMDPartitioning", "Slipstream.Partitioned"
"""names of calls: JAX's, and ours"""
Answer = tuple[bytes, Sequence[Any], Any]
"""the call for one device (MLIR), shardings of its arguments, sharding of its result"""
_ANSWERS: dict[bytes, Answer] = {}
"""by the address of JAX's rules"""


@cache
def record() -> None:
    """From now on, calls of our name in this process are answered by JAX, and kept."""
    private_api.require(Feature.PARTITIONING)

    def divide(*arguments: Any) -> Answer:
        answer: Answer = private_api.PARTITION_RULE.get()(*arguments)
        _ANSWERS[bytes(arguments[-1])] = answer
        return answer

    propagate, infer = private_api.PROPAGATE_RULE.get(), private_api.INFER_RULE.get()
    _register(propagate, divide, infer)


@cache
def replay() -> None:
    """From now on, calls of our name in this process are answered by what they hold."""
    private_api.require(Feature.PARTITIONING)

    def divide(shapes: Any, shardings: Any, shape: Any, sharding: Any, held: bytes) -> Answer:
        sharding_type, answer = private_api.HLO_SHARDING.get(), json.loads(held)
        arguments = [sharding_type.from_string(text) for text in answer["arguments"]]
        result = sharding_type.from_string(answer["result"])
        return base64.b64decode(answer["call"]), arguments, result

    def result_of(*arguments: Any) -> Any:
        return private_api.HLO_SHARDING.get().from_string(json.loads(arguments[-1])["result"])

    _register(lambda sharding, shape, held: sharding, divide, result_of)


def answer_to(asked: str) -> str | None:
    """What a call holds instead of the address of JAX's rules; None if XLA never asked."""
    found = _ANSWERS.get(asked.encode())
    if found is None:
        return None
    call, arguments, result = found
    return json.dumps(
        {
            "arguments": [str(one) for one in arguments],
            "result": str(result),
            "call": base64.b64encode(call).decode(),
        }
    )


def _register(propagate: Any, divide: Any, infer: Any) -> None:
    register = partial(
        private_api.REGISTER_PARTITIONER.get(),
        name=ANSWERED,
        prop_user_sharding=propagate,
        partition=divide,
        infer_sharding_from_operands=infer,
        can_side_effecting_have_replicated_sharding=True,
    )
    register()
    private_api.REGISTER_WITH_PLUGINS.get()(register)
