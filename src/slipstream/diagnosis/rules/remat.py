"""What is computed again in the backward pass though there is memory to keep it."""

from __future__ import annotations

from dataclasses import dataclass

from slipstream.analyses.ops import Op
from slipstream.diagnosis.evidence import USABLE_MEMORY, Evidence
from slipstream.diagnosis.rule import Rule, RuleResults, exhibits
from slipstream.profile.program import Program
from slipstream.profile.semantics.signatures import result_shape
from slipstream.results.diagnosis import Abstention, Finding, Gain, Remedy
from slipstream.simulate.streams import communicates
from slipstream.units import format_bytes, format_time

NAME = "remat"
POLICIES = "https://docs.jax.dev/en/latest/gradient-checkpointing.html"


@dataclass(frozen=True)
class _Kept:
    """A choice of what to keep: what that takes, and what it saves."""

    policy: str
    """of jax.checkpoint_policies"""
    what: str
    ops: tuple[Op, ...]
    bytes: int

    @property
    def us(self) -> float:
        return sum(op.per_step_us for op in self.ops)


def check(evidence: Evidence) -> RuleResults:
    """The results that are cheapest to keep, and what that would save."""
    program = evidence.program
    if program is None:
        return
    again = [op for op in evidence.op_by_name.values() if _is_again(evidence, program, op)]
    total_us = sum(op.per_step_us for op in again)
    if total_us < evidence.noticeable_us:
        return
    free = evidence.free_bytes
    if free is None or evidence.memory is None:
        yield Abstention(NAME, "the memory that the program needs, or the device has, is not known")
        return
    fitting = [
        one
        for one in _choices(evidence, again)
        if one.bytes <= free and _won_us(evidence, one) >= evidence.noticeable_us
    ]
    if not fitting:
        return
    first = fitting[0]
    gain = Gain(
        _won_us(evidence, first),
        0.0,
        max(one.us for one in fitting),
        "modelled",
        "what is computed again, less writing and reading it instead; bytes are counted from the "
        "program, and XLA may fuse less where results are kept",
    )
    yield Finding(
        NAME,
        "much is computed again though there is memory to keep it",
        f"remat takes {format_time(total_us * 1e6)} of the step. The program needs "
        f"{format_bytes(evidence.memory.peak_bytes)} of the "
        f"{format_bytes(evidence.memory.peak_bytes + free)} that JAX takes by default "
        f"({USABLE_MEMORY:.0%} of the device's); keeping {first.what} takes "
        f"{format_bytes(first.bytes)} more.",
        gain,
        tuple(_change(evidence, one) for one in fitting),
        exhibits(first.ops, evidence, "computed again"),
        "slipstream ops PATH --by phase",
        (POLICIES,),
    )


def _is_again(evidence: Evidence, program: Program, op: Op) -> bool:
    """Computed again; weights that are gathered again are sharded on purpose."""
    start = evidence.start(op.instruction)
    return op.phase == "remat" and start is not None and not communicates(program, start)


def _choices(evidence: Evidence, again: list[Op]) -> tuple[_Kept, ...]:
    """What JAX's policies can keep: products are the dearest to compute for their bytes."""
    products = tuple(op for op in again if _is_plain_product(evidence, op))
    return (
        _Kept(
            "dots_with_no_batch_dims_saveable",
            "the results of matrix products with weights",
            products,
            sum(_bytes(evidence, op) for op in products),
        ),
        _Kept(
            "everything_saveable",
            "everything",
            tuple(again),
            sum(_bytes(evidence, op) for op in again),
        ),
    )


def _won_us(evidence: Evidence, kept: _Kept) -> float:
    return kept.us - _traffic_us(evidence, kept.bytes)


def _change(evidence: Evidence, kept: _Kept) -> Remedy:
    won = format_time(_won_us(evidence, kept) * 1e6)
    return Remedy(
        "code",
        f"policy=jax.checkpoint_policies.{kept.policy}",
        f"of jax.checkpoint: keeps {kept.what}, {format_bytes(kept.bytes)} for {won} a step",
    )


def _bytes(evidence: Evidence, op: Op) -> int:
    """What keeping all results of an op takes: one for each turn of the loops around it."""
    start, program = evidence.start(op.instruction), evidence.program
    if start is None or program is None:
        return 0
    return result_shape(start).bytes * (program.executions(start.name) or 1)


def _traffic_us(evidence: Evidence, size: int) -> float:
    """Writing what is kept and reading it again."""
    assert evidence.gpu is not None
    return 2 * size / evidence.gpu.memory_bandwidth * 1e6


def _is_plain_product(evidence: Evidence, op: Op) -> bool:
    start = evidence.start(op.instruction)
    if start is None or op.category != "matmul":
        return False
    gemm = evidence.kernel_features(start).gemm
    return gemm is not None and gemm.batch == 1


RULE = Rule(NAME, "Is much computed again though there is memory to keep it?", check)
