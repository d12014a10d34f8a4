"""Attention that is not fused: a softmax between two matmuls, with the scores in memory.

q kᵀ ──► scores ──► softmax ──► scores ──► v        each arrow through memory, s × s per head
fused    q k v ──────────────────────────► out      scores never leave the chip
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from slipstream.analyses.ops import Op
from slipstream.diagnosis.evidence import Evidence
from slipstream.diagnosis.rule import Rule, RuleResults, exhibits
from slipstream.machines.features import KernelFeatures
from slipstream.machines.gemm_model import Gemm
from slipstream.machines.kernel_model import kernel_us, parameters
from slipstream.machines.machine import Gpu
from slipstream.profile.program import Instruction, Program
from slipstream.profile.semantics.signatures import inside
from slipstream.profile.shapes import Shape
from slipstream.results.diagnosis import Abstention, Finding, Gain, Remedy
from slipstream.simulate.streams import communicates
from slipstream.units import format_bytes, format_time

NAME = "attention"
LARGEST_HEADS = {8: 128, 9: 256}
"""largest head dimension that JAX passes to cuDNN's fused attention, by compute capability from
Ampere on; a multiple of 8 (jax/_src/cudnn/fused_attention_stablehlo.py of github.com/jax-ml/jax)"""
HALF_TYPES = ("bf16", "f16")
CALL = 'jax.nn.dot_product_attention(q, k, v, implementation="cudnn")'
DOCS = "https://docs.jax.dev/en/latest/_autosummary/jax.nn.dot_product_attention.html"


@dataclass(frozen=True)
class Scores:
    """The shape of one attention's scores."""

    batch: int
    """heads × sequences"""
    queries: int
    keys: int

    @property
    def elements(self) -> int:
        return self.batch * self.queries * self.keys

    def fits(self, shape: Shape) -> bool:
        """Whether an array holds these scores, in any order and grouping of dimensions."""
        if not shape.is_float or shape.size != self.elements:
            return False
        rest = list(shape.dims)
        for size in (self.queries, self.keys):
            if size not in rest:
                return False
            rest.remove(size)
        return True


def check(evidence: Evidence) -> RuleResults:
    """Each size of scores that goes through memory, compared with a fused kernel."""
    program = evidence.program
    if program is None:
        return
    for scores, head in _materialised(evidence, program):
        ops = [op for op in evidence.op_by_name.values() if _touches(evidence, op, scores)]
        now_us = sum(op.per_step_us for op in ops)
        if now_us < evidence.noticeable_us:
            continue
        reason = _unsupported(evidence, head)
        if reason:
            yield Abstention(NAME, reason)
            continue
        assert evidence.gpu is not None
        gain = _gain(evidence, evidence.gpu, ops, scores, head, now_us)
        if gain.us is not None and gain.us >= evidence.noticeable_us:
            kinds = {_dtype(evidence, program, op.instruction) for op in ops} - {""}
            yield _finding(evidence, ops, scores, now_us, gain, not kinds & set(HALF_TYPES))


def _unsupported(evidence: Evidence, head: int) -> str:
    """Why cuDNN can't fuse it; empty if it can."""
    gpu = evidence.gpu
    if gpu is None or gpu.compute_capability[0] < min(LARGEST_HEADS):
        return (
            f"cuDNN's support for fused attention on {evidence.model or 'this device'} is unknown"
        )
    largest = LARGEST_HEADS[min(gpu.compute_capability[0], max(LARGEST_HEADS))]
    if head > largest or head % 8:
        return (
            f"attention is not fused, but cuDNN doesn't support head dimension {head} on {gpu.name}"
        )
    return ""


def _finding(
    evidence: Evidence, ops: list[Op], scores: Scores, now_us: float, gain: Gain, needs_cast: bool
) -> Finding:
    note = (
        "with is_causal=True or mask=…; cuDNN's kernel keeps the scores on chip; JAX raises an "
        "error if it doesn't support the mask, bias or head dimension"
    )
    if needs_cast:
        note += "; it needs bfloat16 or float16: cast q, k and v first"
    written = format_bytes(scores.elements * 2)
    return Finding(
        NAME,
        title="attention is not fused: its scores go through memory",
        evidence=f"A softmax between two matmuls: {scores.batch} × {scores.queries} × "
        f"{scores.keys} scores ({written} in 16 bits) are written or read by each of {len(ops)} "
        f"instructions, which take {format_time(now_us * 1e6)} of the step.",
        gain=gain,
        changes=(Remedy("code", CALL, note),),
        exhibits=exhibits(ops, evidence),
        see="slipstream roofline PATH",
        sources=(DOCS,),
    )


def _gain(
    evidence: Evidence, gpu: Gpu, ops: list[Op], scores: Scores, head: int, now_us: float
) -> Gain:
    calls: dict[str, int] = defaultdict(int)
    program = evidence.program
    assert program is not None
    for op in ops:
        start = evidence.start(op.instruction)
        if start is not None and _produces_scores(evidence, start, scores):
            form = "backward" if op.phase == "backward" else "forward"
            calls[form] += program.executions(start.name) or 1
    whole = sum(n * _fused_us(scores, head, form, False, gpu) for form, n in calls.items())
    causal = sum(n * _fused_us(scores, head, form, True, gpu) for form, n in calls.items())
    return Gain(
        us=max(0.0, now_us - whole),
        low_us=0.0,
        high_us=max(0.0, now_us - causal),
        basis="modelled",
        why=f"a model of cuDNN's kernel ({format_time(whole * 1e6)} per step, less if causal), "
        "fitted on an H200; whether cuDNN supports this mask and head dimension is unknown",
    )


def _fused_us(scores: Scores, head: int, form: str, is_causal: bool, gpu: Gpu) -> float:
    gemm = Gemm(scores.batch, scores.queries, scores.keys, head, "bf16")
    moved = 4 * scores.batch * (scores.queries + scores.keys) * head
    size = moved if form == "forward" else 2 * moved
    fused = KernelFeatures("attention", size, gemm=gemm, form=form, is_causal=is_causal)
    return kernel_us(fused, gpu, parameters())


def _materialised(evidence: Evidence, program: Program) -> Iterator[tuple[Scores, int]]:
    """(scores, head dimension) where a matmul, an exponential and another matmul share scores."""
    producers: dict[Scores, int] = {}
    consumers: set[Scores] = set()
    softmaxes: list[Shape] = []
    for instruction in program.scheduled:
        parts = [instruction, *inside(program, instruction)]
        softmaxes += [part.shape for part in parts if part.opcode == "exponential"]
        gemm = _batched(evidence, instruction)
        if gemm is not None:
            scores = Scores(gemm.batch, gemm.m, gemm.n)
            if min(gemm.m, gemm.n) > gemm.k:
                producers[scores] = gemm.k
            consumers |= {Scores(gemm.batch, gemm.m, gemm.k)}
            consumers |= {Scores(gemm.batch, gemm.n, gemm.k)}
    for scores, head in producers.items():
        has_softmax = any(scores.fits(shape) for shape in softmaxes)
        transposed = Scores(scores.batch, scores.keys, scores.queries)
        if has_softmax and ({scores, transposed} & consumers):
            yield scores, head


def _produces_scores(evidence: Evidence, instruction: Instruction, scores: Scores) -> bool:
    gemm = _batched(evidence, instruction)
    return (
        gemm is not None
        and gemm.k < min(gemm.m, gemm.n)
        and (
            Scores(gemm.batch, gemm.m, gemm.n) == scores
            or Scores(gemm.batch, gemm.n, gemm.m) == scores
        )
    )


def _batched(evidence: Evidence, instruction: Instruction) -> Gemm | None:
    features = evidence.kernel_features(instruction)
    gemm = features.gemm if features.kind == "gemm" else None
    return gemm if gemm is not None and gemm.batch > 1 else None


def _touches(evidence: Evidence, op: Op, scores: Scores) -> bool:
    """Whether an op reads or writes scores."""
    start, program = evidence.start(op.instruction), evidence.program
    if start is None or program is None or communicates(program, start):
        return False
    shapes = [start.shape, *(operand.shape for operand in program.operands(start))]
    return any(scores.fits(leaf) for shape in shapes for leaf in shape.leaves())


def _dtype(evidence: Evidence, program: Program, name: str) -> str:
    """The element type of a batched matmul's operands; empty for anything else."""
    instruction = program.instruction(name)
    gemm = _batched(evidence, instruction)
    return gemm.dtype if gemm is not None else ""


RULE = Rule(NAME, "Do attention scores go through memory?", check)
