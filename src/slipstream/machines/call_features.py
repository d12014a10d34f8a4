"""The features of custom calls: kernels of cuBLAS, cuDNN, Transformer Engine and Pallas."""

from __future__ import annotations

import math
from collections.abc import Sequence

from slipstream.machines.features import KernelFeatures
from slipstream.machines.gemm_model import (
    Gemm,
    gemm_of_call,
    gemm_of_convolution,
    tensor_dtype,
)
from slipstream.profile.program import Instruction, Program
from slipstream.profile.semantics.attention import Attention, attention_of
from slipstream.profile.semantics.backend_config import (
    BLOCK_SCALED,
    PALLAS,
    backend_config,
    call_attributes,
)
from slipstream.profile.semantics.flops import is_product_of_te, product_of_sizes
from slipstream.profile.shapes import Shape


def call_features(program: Program, call: Instruction, read: int) -> KernelFeatures:
    """The features of a custom call, which accesses `read` bytes."""
    target = call.custom_call_target
    if target.startswith("__cublas$"):
        written = next(call.shape.leaves()).bytes
        gemm = gemm_of_call(program, call)
        return KernelFeatures("gemm", read, written, _addend(program, call), gemm=gemm)
    if target.startswith("__cudnn$conv"):
        kernel_shape = program.operands(call)[1].shape
        labels = str(call.attributes.get("dim_labels", ""))
        if "BackwardFilter" in target:
            kernel_shape = next(call.shape.leaves())
        spelled = labels.partition("_")[2].partition("->")[0]
        inputs = kernel_shape.dims[spelled.index("i")] if "i" in spelled else 0
        return KernelFeatures(
            "convolution",
            _touched(program, call, read),
            gemm=gemm_of_convolution(program, call),
            form=_form(target),
            channels=inputs,
        )
    shapes = [operand.shape for operand in program.operands(call)]
    if target == BLOCK_SCALED:
        return _block_scaled(call, shapes, read)
    attention = attention_of(call, shapes)
    if attention is not None:
        return _attention(attention, read)
    if target.startswith("te_"):
        return _transformer_engine(call, shapes, read)
    if target.startswith("xla_ffi") and target.endswith("_callback"):
        return KernelFeatures("callback", read)
    if target.startswith(PALLAS):
        return _pallas(call, read)
    if "sort" in target.lower() or "topk" in target.lower():
        return KernelFeatures("sort", read)
    return KernelFeatures("other", read)


def _addend(program: Program, call: Instruction) -> int:
    """Bytes of the matrix that cuBLAS adds to the result (C, if beta is not zero)."""
    operands = program.operands(call)
    has_addend = bool(backend_config(call, "gemm_backend_config").get("beta"))
    return operands[2].shape.bytes if has_addend and len(operands) > 2 else 0


def _form(target: str) -> str:
    if "BackwardInput" in target:
        return "input"
    return "filter" if "BackwardFilter" in target else "forward"


def _attention(attention: Attention, read: int) -> KernelFeatures:
    gemm = Gemm(attention.batch, attention.queries, attention.keys, attention.head, attention.dtype)
    return KernelFeatures(
        "attention",
        read,
        gemm=gemm,
        form="backward" if attention.is_backward else "forward",
        is_causal=attention.is_causal,
        window=attention.window,
    )


def _block_scaled(call: Instruction, shapes: Sequence[Shape], read: int) -> KernelFeatures:
    (*batch, m, k), (*_, n, _) = shapes[0].dims, shapes[1].dims
    gemm = Gemm(math.prod(batch), m, n, k, tensor_dtype(shapes[0].dtype))
    return KernelFeatures("gemm", read, next(call.shape.leaves()).bytes, gemm=gemm)


def _transformer_engine(call: Instruction, shapes: Sequence[Shape], read: int) -> KernelFeatures:
    """Products by their shapes; norms, activations, casts and softmax by their bytes."""
    target = call.custom_call_target
    result = next(call.shape.leaves())
    if is_product_of_te(target):
        gemm = _product_of_sizes(shapes, result)
        kind = "gemm" if gemm is not None else "other"
        return KernelFeatures(kind, read, written=result.bytes, gemm=gemm)
    elements = max((leaf.size for leaf in call.shape.leaves()), default=0)
    if any(part in target for part in ("norm", "softmax")):
        return KernelFeatures("rows", read, elements=elements)
    if any(part in target for part in ("act_lu", "quantize", "cast", "transpose", "amax")):
        kind = "transpose" if "transpose" in target else "loop"
        return KernelFeatures(kind, read, elements=elements)
    return KernelFeatures("other", read)


def _product_of_sizes(shapes: Sequence[Shape], result: Shape) -> Gemm | None:
    sizes = product_of_sizes(shapes, result)
    if sizes is None:
        return None
    left = shapes[0].dtype
    return Gemm(1, *sizes, "f8" if left in ("u8", "s8") else tensor_dtype(left))


def _pallas(call: Instruction, read: int) -> KernelFeatures:
    """The work that the compiler's process counted in the kernel's code (`pallas_calls`)."""
    stated = call_attributes(call)
    names = ("flops", "operations", "transcendentals", "programs", "m", "n", "k")
    found = {name: stated.get(f"slipstream_{name}") for name in names}
    counts = {name: int(n) for name, n in found.items() if isinstance(n, int) and n >= 0}
    if len(counts) < len(names):
        return KernelFeatures("other", read)
    tile = counts["m"] * counts["n"] * counts["k"]
    gemm = None
    if tile:
        times = max(round(counts["flops"] / (2 * tile)), 1)
        dtype = str(stated.get("slipstream_dtype", ""))
        gemm = Gemm(times, counts["m"], counts["n"], counts["k"], dtype)
    longest = stated.get("slipstream_longest", 1.0)
    return KernelFeatures(
        "pallas",
        read,
        operations=counts["operations"],
        transcendentals=counts["transcendentals"],
        gemm=gemm,
        is_triton=call.custom_call_target.startswith("__gpu$xla.gpu.triton"),
        programs=counts["programs"],
        longest=float(longest) if isinstance(longest, int | float) else 1.0,
        is_least=bool(stated.get("slipstream_is_dynamic")),
    )


def _touched(program: Program, call: Instruction, read: int) -> int:
    """Bytes of a convolution; with a stride larger than its window it skips pixels."""
    window = str(call.attributes.get("window", ""))
    sizes = _numbers(window, "size")
    strides = _numbers(window, "stride")
    shares = [min(1.0, s / t) for s, t in zip(sizes, strides, strict=False)]
    if not shares or math.prod(shares) == 1:
        return read
    image = program.operands(call)[0].shape.bytes
    if "BackwardInput" in call.custom_call_target:
        return read
    return read - round(image * (1 - math.prod(shares)))


def _numbers(window: str, key: str) -> list[int]:
    _, found, rest = window.partition(f"{key}=")
    text = rest.split()[0].rstrip("}") if found else ""
    return [int(part) for part in text.split("x")] if text.replace("x", "").isdigit() else []
