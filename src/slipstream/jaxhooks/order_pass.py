"""A pass of our own in XLA's pipeline, right behind its scheduler: reads a schedule, or sets it.

    XLA's scheduler ──► HloModuleProto ──► our pass ──► HloModuleProto ──► code
                        schedule: sequences of ids      the same ids in another order

XLA verifies what the pass returns, and calls it for every module of a process, also for the small
ones of single fusions; `fingerprint_before_lhs` is stated in scheduled programs alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from slipstream.errors import Missing

FINGERPRINT = "fingerprint_before_lhs"
OLDEST = (0, 11)
"""of JAX: in 0.10 the functions exist, but XLA never calls the pass for GPUs"""
_NAME = "slipstream-order"


@dataclass
class OrderPass:
    """What the pass saw and did while it was registered."""

    sequences: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """the order to set: names of instructions by computation; empty to leave XLA's"""
    fingerprint: str | None = None
    """of the program that the order is for"""
    program: str = ""
    """the name of the module that is meant, where a job may compile others at the same time"""
    scheduled: bytes | None = None
    """the largest scheduled module, as XLA's scheduler left it"""
    is_set: bool = False
    problem: str = ""
    """why the order was not set"""

    def __call__(self, data: bytes) -> bytes | None:
        """XLA's callback: the changed module, or None to leave it."""
        from slipstream.sources.proto_schema import message

        module = message("HloModuleProto").FromString(data)
        stated = module.frontend_attributes.map.get(FINGERPRINT, "")
        if not stated or not module.schedule.sequences:
            return None
        if self.program and module.name != self.program:
            return None
        if self.scheduled is None or len(data) > len(self.scheduled):
            self.scheduled = data
        if not self.sequences:
            return None
        problem = self._reordered(module, stated)
        if problem:
            self.problem = problem
            return None
        self.is_set = True
        return bytes(module.SerializeToString())

    def _reordered(self, module: Any, stated: str) -> str:
        if self.fingerprint and stated != self.fingerprint:
            return f"the order is for a program with fingerprint {self.fingerprint}, not {stated}"
        by_name = {one.name: one for one in module.computations}
        for name, sequence in self.sequences.items():
            computation = by_name.get(name)
            if computation is None:
                return f"the program has no computation {name}"
            ids = {one.name: one.id for one in computation.instructions}
            if ids.keys() != set(sequence) or len(sequence) != len(ids):
                return f"{name} has other instructions than the order"
            listed = module.schedule.sequences[computation.id].instruction_ids
            del listed[:]
            listed.extend(ids[one] for one in sequence)
        return ""


def is_supported() -> bool:
    """Whether this JAX calls a pass behind the GPU scheduler."""
    import jax

    numbers = tuple(int(part) for part in jax.__version__.split(".")[:2] if part.isdecimal())
    return numbers >= OLDEST and _functions() is not None


def why_not() -> str:
    import jax

    oldest = ".".join(map(str, OLDEST))
    return f"XLA takes an order from JAX {oldest} on, and this is {jax.__version__}"


@contextmanager
def registered(found: OrderPass) -> Iterator[OrderPass]:
    """Register a pass for the compiles inside."""
    functions = _functions()
    if functions is None or not is_supported():
        raise Missing(why_not())
    where = {"stage": functions.PipelineStage.POST_SCHEDULER, "platforms": "cuda"}
    functions.register_hlo_module_transformation(found, name=_NAME, **where)
    try:
        yield found
    finally:
        functions.clear_hlo_module_transformation(_NAME, **where)


def _functions() -> Any:
    try:
        from jax.extend import xla
    except ImportError:
        return None
    needed = ("PipelineStage", "register_hlo_module_transformation")
    return xla if all(hasattr(xla, name) for name in needed) else None
