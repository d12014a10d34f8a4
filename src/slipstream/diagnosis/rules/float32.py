"""Matrix products in float32: on tensor cores as TF32, or not even that."""

from __future__ import annotations

from dataclasses import dataclass, replace

from slipstream.analyses.ops import Op
from slipstream.diagnosis.evidence import Evidence
from slipstream.diagnosis.rule import Rule, RuleResults, exhibits
from slipstream.machines.kernel_features import KernelFeatures
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
    """whether it asks for all of float32's precision, which TF32 has not"""


def check(evidence: Evidence) -> RuleResults:
    """Products that TF32 is forbidden for, and those that bfloat16 would do in half the time."""
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
        yield Abstention(NAME, f"what {evidence.model or 'the device'} multiplies at is not known")
        return
    if "tf32" in gpu.peak_flops:
        yield from _full_precision(evidence, gpu, [one for one in found if one.is_full])
    yield from _narrower(evidence, gpu, [one for one in found if not one.is_full])


def _has_any(evidence: Evidence) -> bool:
    """Whether any product has float32 operands: most programs have none, and that is soon seen."""
    for op in evidence.op_by_name.values():
        start = evidence.start(op.instruction) if op.category == "matmul" else None
        gemm = evidence.kernel_features(start).gemm if start is not None else None
        if gemm is not None and gemm.dtype in ("f32", "tf32"):
            return True
    return False


def _matmul(program: Program, op: Op, features: KernelFeatures) -> _Matmul:
    """`highest` is the precision that XLA does not use TF32 for."""
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
        "matrix products run in full float32: TF32 is off",
        f"{len(matmuls)} products ask for the highest precision, so that tensor cores do not "
        f"take them as TF32: {format_time(now * 1e6)} of the step.",
        _gain(now, then, "TF32"),
        (
            Remedy(
                "code",
                'jax.config.update("jax_default_matmul_precision", "tensorfloat32")',
                "or precision=None where a product asks for more; TF32 has 10 bits of mantissa",
            ),
        ),
        exhibits([one.op for one in matmuls], evidence, "float32"),
        "slipstream roofline PATH",
        (PRECISION,),
    )


def _narrower(evidence: Evidence, gpu: Gpu, matmuls: list[_Matmul]) -> RuleResults:
    now, then = _times(matmuls, gpu, "bf16")
    if now - then < evidence.noticeable_us:
        return
    yield Finding(
        NAME,
        "matrix products take float32 operands",
        f"{len(matmuls)} products of float32 run as TF32, at half the rate of bfloat16 and with "
        f"twice the bytes: {format_time(now * 1e6)} of the step.",
        _gain(now, then, "bfloat16"),
        (
            Remedy(
                "code",
                "x.astype(jnp.bfloat16) @ w.astype(jnp.bfloat16)",
                "keep weights and sums in float32 (preferred_element_type=jnp.float32); check the "
                "loss, as the results change",
            ),
        ),
        exhibits([one.op for one in matmuls], evidence, "float32"),
        "slipstream roofline PATH",
        (PRECISION,),
    )


def _times(matmuls: list[_Matmul], gpu: Gpu, dtype: str) -> tuple[float, float]:
    """What the products take, and would take in another type: scaled as the models say."""
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
        now - then,
        0.0,
        now - then,
        "modelled",
        f"the products' times scaled by models of the GPU for {what}; casts may add to it, and "
        "whether the loss allows it is for you to say",
    )


RULE = Rule(NAME, "Are matrix products done in float32, or without TF32?", check)
