"""Matmuls with float32 operands: as TF32 on tensor cores, or without tensor cores at all."""

from __future__ import annotations

from dataclasses import dataclass, replace

from slipstream.analyses.ops import Op
from slipstream.diagnosis.evidence import Evidence
from slipstream.diagnosis.rule import Rule, RuleResults, exhibits
from slipstream.machines.features import KernelFeatures
from slipstream.machines.kernel_model import kernel_us, parameters
from slipstream.machines.machine import Gpu
from slipstream.profile.program import Program
from slipstream.profile.semantics.float32_products import float32_matmuls
from slipstream.profile.semantics.signatures import inside
from slipstream.results.diagnosis import Abstention, Finding, Gain, Remedy
from slipstream.units import format_time

NAME = "float32"
PRECISION = "https://docs.jax.dev/en/latest/_autosummary/jax.default_matmul_precision.html"


@dataclass(frozen=True)
class _Matmul:
    op: Op
    features: KernelFeatures
    is_full: bool
    """whether it requires full float32 precision, which TF32 doesn't have"""


def check(evidence: Evidence) -> RuleResults:
    """Matmuls that may not use TF32, and those that bfloat16 would do in half the time."""
    program = evidence.program
    if program is None or not _has_any(evidence):
        return
    found = []
    for matmul in float32_matmuls(program):
        op = evidence.op_by_name.get(matmul.name)
        features = evidence.kernel_features(program.instruction(matmul.name))
        if op is not None and features.gemm is not None:
            found.append(_matmul(program, op, features))
    total_us = sum(one.op.per_step_us for one in found)
    if total_us < evidence.noticeable_us:
        return
    gpu = evidence.gpu
    if gpu is None:
        yield Abstention(
            NAME, f"the matmul throughput of {evidence.model or 'the device'} is unknown"
        )
        return
    if "tf32" in gpu.peak_flops:
        yield from _full_precision(evidence, gpu, [one for one in found if one.is_full])
    yield from _narrower(evidence, gpu, [one for one in found if not one.is_full])


def _has_any(evidence: Evidence) -> bool:
    """Whether any matmul has float32 operands: a quick check, since most programs have none."""
    for op in evidence.op_by_name.values():
        start = evidence.start(op.instruction) if op.category == "matmul" else None
        gemm = evidence.kernel_features(start).gemm if start is not None else None
        if gemm is not None and gemm.dtype in ("f32", "tf32"):
            return True
    return False


def _matmul(program: Program, op: Op, features: KernelFeatures) -> _Matmul:
    """At precision `highest`, XLA does not use TF32."""
    instruction = program.instruction(op.instruction)
    parts = (instruction, *inside(program, instruction))
    asks = [str(i.attributes.get("operand_precision", "")) + i.backend_config for i in parts]
    is_full = any("highest" in text.lower() for text in asks)
    assert features.gemm is not None
    dtype = "f32" if is_full else "tf32"
    return _Matmul(op, replace(features, gemm=replace(features.gemm, dtype=dtype)), is_full)


def _full_precision(evidence: Evidence, gpu: Gpu, matmuls: list[_Matmul]) -> RuleResults:
    now, then = _times(matmuls, gpu, "tf32")
    if now - then < evidence.noticeable_us:
        return
    yield Finding(
        NAME,
        title="matmuls run in full float32: TF32 is off",
        evidence=f"{len(matmuls)} matmuls request the highest precision, so they don't run as TF32 "
        f"on tensor cores: {format_time(now * 1e6)} of the step.",
        gain=_gain(now, then, "TF32"),
        changes=(
            Remedy(
                "code",
                'jax.config.update("jax_default_matmul_precision", "tensorfloat32")',
                "or precision=None where a matmul requests more; TF32 has a 10-bit mantissa",
            ),
        ),
        exhibits=exhibits([one.op for one in matmuls], evidence, "float32"),
        see="slipstream roofline PATH",
        sources=(PRECISION,),
    )


def _narrower(evidence: Evidence, gpu: Gpu, matmuls: list[_Matmul]) -> RuleResults:
    now, then = _times(matmuls, gpu, "bf16")
    if now - then < evidence.noticeable_us:
        return
    others = _sixteen_bits(evidence)
    among = f" Other matmuls with 16-bit operands: {len(others)}." if others else ""
    yield Finding(
        NAME,
        title="some matmuls have float32 operands among others of 16 bits"
        if others
        else "matmuls have float32 operands",
        evidence=f"{len(matmuls)} float32 matmuls run as TF32, at half the rate of bfloat16 and "
        f"with twice the bytes: {format_time(now * 1e6)} of the step.{among}",
        gain=_gain(now, then, "bfloat16"),
        changes=(
            Remedy(
                "code",
                "x.astype(jnp.bfloat16) @ w.astype(jnp.bfloat16)",
                "keep weights and accumulation in float32 (preferred_element_type=jnp.float32); "
                "results change, so check the loss",
            ),
        ),
        exhibits=exhibits([one.op for one in matmuls], evidence, "float32"),
        see="slipstream roofline PATH",
        sources=(PRECISION,),
    )


def _sixteen_bits(evidence: Evidence) -> list[str]:
    """Matmuls whose operands were converted: where most are, the others may be an oversight."""
    found = []
    for op in evidence.op_by_name.values():
        start = evidence.start(op.instruction) if op.category == "matmul" else None
        gemm = evidence.kernel_features(start).gemm if start is not None else None
        if gemm is not None and gemm.dtype in ("bf16", "f16"):
            found.append(op.instruction)
    return found


def _times(matmuls: list[_Matmul], gpu: Gpu, dtype: str) -> tuple[float, float]:
    """(time now, time in another type) of the matmuls; measured times scaled by the models."""
    now = then = 0.0
    for one in matmuls:
        gemm = one.features.gemm
        assert gemm is not None
        half = 0.5 if dtype == "bf16" else 1.0
        other = replace(
            one.features,
            bytes=round(one.features.bytes * half),
            written=round(one.features.written * half),
            gemm=replace(gemm, dtype=dtype),
        )
        before, after = (
            kernel_us(features, gpu, parameters()) for features in (one.features, other)
        )
        now += one.op.per_step_us
        then += one.op.per_step_us * min(1.0, after / before if before else 1.0)
    return now, then


def _gain(now: float, then: float, what: str) -> Gain:
    return Gain(
        us=now - then,
        low_us=0.0,
        high_us=now - then,
        basis="modelled",
        why=f"the matmuls' times scaled by GPU models for {what}; casts may cost extra, and you "
        "must decide whether the loss tolerates it",
    )


RULE = Rule(NAME, "Do matmuls run in float32, or without TF32?", check)
