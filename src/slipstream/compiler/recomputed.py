"""Products that XLA computes a second time to save memory, which it would not do on a GPU.

Without a GPU nothing is autotuned, and each product is a Triton fusion. XLA's rematerialisation may
copy a fusion, but never a custom call, and on a GPU the autotuner makes large products calls of
cuBLAS.
"""

from __future__ import annotations

from slipstream.compiler.messages import CompilerMessage
from slipstream.costs.scheduler_names import is_clone
from slipstream.profile.program import Program
from slipstream.profile.semantics.categories import category

TRITON = "xla_gpu_enable_triton_gemm"
_COPIED = b".remat"


def recomputed_products(program: Program) -> list[str]:
    """Names of the fusions that compute a product again."""
    return [
        instruction.name
        for computation in program.computations.values()
        for instruction in computation.instructions
        if instruction.opcode == "fusion"
        and is_clone(instruction.name)
        and category(program, instruction) == "matmul"
    ]


def may_recompute(proto: bytes) -> bool:
    """Whether a serialized program has copied instructions at all."""
    return _COPIED in proto


def note(products: list[str]) -> CompilerMessage:
    what = f"{len(products)} products" if len(products) > 1 else "a product"
    text = (
        f"compiled with products of cuBLAS (--{TRITON}=false): with Triton's, XLA computes {what} "
        "again to save memory; on a GPU its autotuner takes cuBLAS for large products, which XLA "
        "never computes again"
    )
    return CompilerMessage("recomputed-products", text, "info", products[0])
