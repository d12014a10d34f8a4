"""Keep `pallas_call(cost_estimate=…)`, which JAX drops when it lowers for GPUs.

    jaxpr of the function ──► estimates by operand types ──► frontend attributes of the calls

The attributes go through XLA unchanged. `pallas_calls` uses them where the kernel's own code
doesn't tell how much it does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from slipstream.compiler.worker.pallas_calls import ESTIMATE, MOSAIC, TRITON
from slipstream.jaxhooks import compiling

Operands = tuple[str, ...]


def estimates_of(traced: Any) -> dict[Operands, str]:
    """`flops,transcendentals` of the Pallas calls that state them, by the types of operands."""
    found = {}
    for equation in equations(traced.jaxpr):
        stated = equation.params.get("cost_estimate")
        if equation.primitive.name == "pallas_call" and stated is not None:
            operands = tuple(_text(value.aval.shape, value.aval.dtype) for value in equation.invars)
            found[operands] = f"{int(stated.flops)},{int(stated.transcendentals)}"
    return found


def with_estimates(stablehlo: bytes, estimates: Mapping[Operands, str]) -> bytes:
    """A program whose Pallas calls carry their estimates."""
    if not estimates:
        return stablehlo
    with compiling.parsed(stablehlo) as (module, ir):

        def visit(op: Any) -> Any:
            inner = op.operation
            if inner.name == "stablehlo.custom_call":
                target = ir.StringAttr(inner.attributes["call_target_name"]).value
                stated = estimates.get(tuple(map(_operand, inner.operands)))
                if stated is not None and target.startswith((TRITON, MOSAIC)):
                    attributes = {ESTIMATE: ir.StringAttr.get(stated)}
                    inner.attributes["mhlo.frontend_attributes"] = ir.DictAttr.get(attributes)
            return ir.WalkResult.ADVANCE

        module.operation.walk(visit)
        return compiling.bytecode(module)


def equations(jaxpr: Any) -> Iterator[Any]:
    """All equations of a jaxpr, and of those inside them; not those of kernels."""
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        yield equation
        if equation.primitive.name == "pallas_call":
            continue
        for value in equation.params.values():
            for inner in value if isinstance(value, (tuple, list)) else (value,):
                if hasattr(inner, "eqns") or hasattr(inner, "jaxpr"):
                    yield from equations(inner)


def _text(shape: Any, dtype: Any) -> str:
    return "x".join([*map(str, shape), str(dtype.itemsize)])


def _operand(value: Any) -> str:
    """Dimensions and bytes of an element: MLIR and numpy spell types differently."""
    kind = value.type
    bits = max(getattr(kind.element_type, "width", 8), 8)
    return "x".join([*map(str, kind.shape), str(bits // 8)])
