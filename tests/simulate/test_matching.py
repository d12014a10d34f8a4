"""Costs of one program's instructions for those of another."""

import pytest

from slipstream.costs.table import Cost, CostTable, ProgramCosts
from slipstream.machines.kernel_model import kernel_time
from slipstream.machines.topology import machine
from slipstream.profile.program import Program
from slipstream.simulate.costing import costing
from slipstream.sources.hlo.reader import program_from_text

H200 = machine("H200")
CUBLAS = """%product = (bf16[8192,8192]{1,0}, s8[4194304]{0}) custom-call(%a, %b), \
custom_call_target="__cublas$lt$matmul", backend_config={"gemm_backend_config":{\
"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],\
"rhs_contracting_dimensions":["0"],"lhs_batch_dimensions":[],"rhs_batch_dimensions":[]}}}"""
TRITON = """%product = bf16[8192,8192]{1,0} fusion(%a, %b, %c), kind=kCustom, \
calls=%fused, backend_config={"fusion_backend_config":{"kind":"__triton_gemm"}}"""
TEXT = """HloModule step, is_scheduled=true

%fused (p: bf16[8192,256], q: bf16[256,8192], r: bf16[8192,8192]) -> bf16[8192,8192] {
  %p = bf16[8192,256]{1,0} parameter(0)
  %q = bf16[256,8192]{1,0} parameter(1)
  %r = bf16[8192,8192]{1,0} parameter(2)
  %dot = bf16[8192,8192]{1,0} dot(%p, %q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %sum = bf16[8192,8192]{1,0} add(%dot, %r)
}

ENTRY %main (a: bf16[8192,256], b: bf16[256,8192], c: bf16[8192,8192]) -> bf16[8192,8192] {
  %a = bf16[8192,256]{1,0} parameter(0)
  %b = bf16[256,8192]{1,0} parameter(1)
  %c = bf16[8192,8192]{1,0} parameter(2)
  PRODUCT
  ROOT %copy = bf16[8192,8192]{1,0} copy(%c)
}
"""


def program(product: str) -> Program:
    return program_from_text(TEXT.replace("PRODUCT", product))


def test_the_cost_of_a_matmul_in_another_kernel_is_scaled_by_the_models() -> None:
    """Triton's adds a matrix, which cuBLAS's doesn't read; copying its time would forget that."""
    source, target = program(CUBLAS), program(TRITON)
    models = [kernel_time(H200, p, p.instruction("product")).us for p in (source, target)]
    assert models[1] > 1.2 * models[0]
    costs = CostTable((ProgramCosts(None, "step", {"product": Cost("product", 100.0)}),))
    found = costing(target, H200, costs, source)["product"]
    assert found.basis == "calibrated"
    assert found.us == pytest.approx(100 * models[1] / models[0])
    assert found.why == f"the same matmul, in another kernel × {models[1] / models[0]:.2f}"
    assert costing(source, H200, costs, source)["product"].us == 100
