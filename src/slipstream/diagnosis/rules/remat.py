"""Results that the backward pass recomputes although memory could hold them."""

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
class _Policy:
    """A checkpoint policy: what it keeps, what that needs and what it saves."""

    name: str
    """in jax.checkpoint_policies"""
    keeps: str
    ops: tuple[Op, ...]
    bytes: int

    @property
    def us(self) -> float:
        return sum(op.per_step_us for op in self.ops)


def check(evidence: Evidence) -> RuleResults:
    """Find the checkpoint policies that fit in memory and pay off."""
    program = evidence.program
    if program is None:
        return
    recomputed = [op for op in evidence.op_by_name.values() if _is_remat(evidence, program, op)]
    total_us = sum(op.per_step_us for op in recomputed)
    if total_us < evidence.noticeable_us:
        return
    free = evidence.free_bytes
    if free is None or evidence.memory is None:
        yield Abstention(NAME, "the program's memory use or the device's memory is unknown")
        return
    fitting = [
        one
        for one in _policies(evidence, recomputed)
        if one.bytes <= free and _saved_us(evidence, one) >= evidence.noticeable_us
    ]
    if not fitting:
        return
    first = fitting[0]
    gain = Gain(
        us=_saved_us(evidence, first),
        low_us=0.0,
        high_us=max(one.us for one in fitting),
        basis="modelled",
        why="the time of recomputation minus writing and reading the results instead; sizes come "
        "from the program, and XLA may fuse less if results are kept",
    )
    yield Finding(
        NAME,
        title="much is recomputed although memory could hold it",
        evidence=f"Rematerialisation takes {format_time(total_us * 1e6)} of the step. The program "
        f"needs {format_bytes(evidence.memory.peak_bytes)} of the "
        f"{format_bytes(evidence.memory.peak_bytes + free)} that JAX allocates by default "
        f"({USABLE_MEMORY:.0%} of the device's memory); keeping {first.keeps} takes "
        f"{format_bytes(first.bytes)} more.",
        gain=gain,
        changes=tuple(_change(evidence, one) for one in fitting),
        exhibits=exhibits(first.ops, evidence, "recomputed"),
        see="slipstream ops PATH --by phase",
        sources=(POLICIES,),
    )


def _is_remat(evidence: Evidence, program: Program, op: Op) -> bool:
    """Whether an op is recomputed; weights gathered again don't count: they are sharded on
    purpose."""
    start = evidence.start(op.instruction)
    return op.phase == "remat" and start is not None and not communicates(program, start)


def _policies(evidence: Evidence, recomputed: list[Op]) -> tuple[_Policy, ...]:
    """JAX's policies; matmuls cost the most to recompute for their bytes."""
    matmuls = tuple(op for op in recomputed if _is_unbatched_matmul(evidence, op))
    return (
        _Policy(
            "dots_with_no_batch_dims_saveable",
            "the results of matmuls with weights",
            matmuls,
            sum(_bytes(evidence, op) for op in matmuls),
        ),
        _Policy(
            "everything_saveable",
            "everything",
            tuple(recomputed),
            sum(_bytes(evidence, op) for op in recomputed),
        ),
    )


def _saved_us(evidence: Evidence, policy: _Policy) -> float:
    return policy.us - _traffic_us(evidence, policy.bytes)


def _change(evidence: Evidence, policy: _Policy) -> Remedy:
    saved = format_time(_saved_us(evidence, policy) * 1e6)
    return Remedy(
        "code",
        f"policy=jax.checkpoint_policies.{policy.name}",
        f"for jax.checkpoint: keeps {policy.keeps} ({format_bytes(policy.bytes)}), saves {saved} "
        "per step",
    )


def _bytes(evidence: Evidence, op: Op) -> int:
    """Bytes needed to keep all results of an op, one for each iteration of the loops around it."""
    start, program = evidence.start(op.instruction), evidence.program
    if start is None or program is None:
        return 0
    return result_shape(start).bytes * (program.executions(start.name) or 1)


def _traffic_us(evidence: Evidence, size: int) -> float:
    """The time to write the kept results and read them back."""
    assert evidence.gpu is not None
    return 2 * size / evidence.gpu.memory_bandwidth * 1e6


def _is_unbatched_matmul(evidence: Evidence, op: Op) -> bool:
    start = evidence.start(op.instruction)
    if start is None or op.category != "matmul":
        return False
    gemm = evidence.kernel_features(start).gemm
    return gemm is not None and gemm.batch == 1


RULE = Rule(NAME, "Is much recomputed although memory could hold it?", check)
