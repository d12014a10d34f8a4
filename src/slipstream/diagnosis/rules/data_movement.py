"""Kernels that compute nothing: values written again in another layout, or in another type."""

from __future__ import annotations

from collections.abc import Callable

from slipstream.analyses.ops import Op
from slipstream.diagnosis.evidence import Evidence
from slipstream.diagnosis.rule import Rule, RuleResults, exhibits
from slipstream.profile.program import Instruction, Program
from slipstream.profile.semantics.dataflow import fused
from slipstream.profile.semantics.signatures import result_shape
from slipstream.results.diagnosis import Finding, Gain, Remedy
from slipstream.units import format_time

LAYOUT, CONVERTS = "layout-copies", "converts"
_QUIET = frozenset(("parameter", "constant", "bitcast", "reshape", "tuple", "get-tuple-element"))
EINSUM = "https://docs.jax.dev/en/latest/_autosummary/jax.numpy.einsum.html"
PRECISION = "https://docs.jax.dev/en/latest/jep/9407-type-promotion.html"

Matches = Callable[[Program, Instruction], bool]


def check_layouts(evidence: Evidence) -> RuleResults:
    """Transposes, and copies into another layout."""
    found = _found(evidence, _changes_layout)
    total = sum(op.per_step_us for op in found)
    if total < evidence.noticeable_us:
        return
    yield Finding(
        LAYOUT,
        title="arrays are copied into another layout",
        evidence=f"{len(found)} instructions only transpose or copy arrays within the device's "
        f"memory: {format_time(total * 1e6)} of the step.",
        gain=_gain(total, "if what made or reads the array used the same order of dimensions"),
        changes=(_remedy(evidence),),
        exhibits=exhibits(found, evidence),
        see="slipstream ops PATH --filter 'copy|transpose'",
        sources=(EINSUM,),
    )


def _remedy(evidence: Evidence) -> Remedy:
    if any(op.category == "convolution" for op in evidence.op_by_name.values()):
        return Remedy(
            "code",
            'dimension_numbers=("NHWC", "HWIO", "NHWC")',
            "of conv_general_dilated: the order in which cuDNN's kernels for tensor cores read and "
            "write; keep activations so from the input on",
        )
    return Remedy(
        "code",
        'jnp.einsum("btnh,bsnh->bnts", q, k)  # instead of transposes and @',
        "lets XLA choose the order of dimensions; or keep weights and activations in the order in "
        "which most products contract them",
    )


def check_converts(evidence: Evidence) -> RuleResults:
    """Kernels that do nothing but convert floating-point types."""
    found = _found(evidence, _converts)
    total = sum(op.per_step_us for op in found)
    if total < evidence.noticeable_us:
        return
    program = evidence.program
    assert program is not None
    pairs = {_types(program, start) for op in found if (start := evidence.start(op.instruction))}
    yield Finding(
        CONVERTS,
        title="arrays are written again in another floating-point type",
        evidence=f"{len(found)} instructions only convert ({', '.join(sorted(pairs))}): "
        f"{format_time(total * 1e6)} of the step.",
        gain=_gain(total, "if the values were made in the type in which they are read"),
        changes=(
            Remedy(
                "code",
                "params = jax.tree.map(lambda x: x.astype(jnp.bfloat16), params)  # once per step",
                "cast weights once, before loops over layers and microbatches; or keep a copy in "
                "the type of the products. A float32 scalar or mask makes all of an array float32",
            ),
        ),
        exhibits=exhibits(found, evidence),
        see="slipstream ops PATH --filter convert",
        sources=(PRECISION,),
    )


def _gain(total: float, why: str) -> Gain:
    return Gain(
        us=total, low_us=0.0, high_us=total, basis="measured", why=f"their whole time, {why}"
    )


def _found(evidence: Evidence, matches: Matches) -> list[Op]:
    program = evidence.program
    found = []
    for op in evidence.op_by_name.values():
        start = evidence.start(op.instruction)
        if program is None or start is None or start.is_start or start.shape.on_host:
            continue
        from_host = any(one.shape.on_host for one in program.operands(start))
        if start.collective is None and not from_host and matches(program, start):
            found.append(op)
    return found


def _work(program: Program, instruction: Instruction) -> list[Instruction]:
    """What an instruction does, without what does nothing."""
    computation = fused(program, instruction)
    parts = computation.instructions if computation is not None else (instruction,)
    return [one for one in parts if one.opcode not in _QUIET]


def _changes_layout(program: Program, instruction: Instruction) -> bool:
    work = _work(program, instruction)
    if not work or not {one.opcode for one in work} <= {"copy", "transpose", "convert"}:
        return False
    if any(one.opcode == "transpose" and not _is_view(program, one) for one in work):
        return True
    # A copy in the same layout keeps a value that would be overwritten.
    return any(one.opcode == "copy" and not _is_view(program, one) for one in work)


def _is_view(program: Program, instruction: Instruction) -> bool:
    """Whether elements keep their order in memory, apart from dimensions of length 1."""
    operand = program.operands(instruction)[0].shape
    result = result_shape(instruction)
    if not operand.layout or not result.layout:
        return not operand.layout and not result.layout and instruction.opcode == "copy"
    order = list(range(len(result.dims)))
    if instruction.opcode == "transpose":
        moved = instruction.attributes.get("dimensions")
        order = list(moved) if isinstance(moved, tuple) else order
    old = [one for one in operand.layout if operand.dims[one] > 1]
    new = [order[one] for one in result.layout if result.dims[one] > 1]
    return old == new


def _converts(program: Program, instruction: Instruction) -> bool:
    work = _work(program, instruction)
    converts = [one for one in work if one.opcode == "convert"]
    return (
        bool(converts)
        and len(converts) == len(work)
        and all(_is_float(program, one) for one in converts)
    )


def _is_float(program: Program, convert: Instruction) -> bool:
    operand = program.operands(convert)[0].shape
    return operand.is_float and convert.shape.is_float and operand.dtype != convert.shape.dtype


def _types(program: Program, instruction: Instruction) -> str:
    first = next(one for one in _work(program, instruction) if one.opcode == "convert")
    return f"{program.operands(first)[0].shape.dtype} to {first.shape.dtype}"


RULES = (
    Rule(LAYOUT, "Are arrays copied into another layout?", check_layouts),
    Rule(CONVERTS, "Are arrays written again in another type?", check_converts),
)
