"""Fused attention: what a call of cuDNN or of Transformer Engine computes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from slipstream.profile.program import Instruction
from slipstream.profile.semantics.backend_config import (
    TPU_KERNEL,
    backend_config,
    call_attributes,
    kernel_code,
)
from slipstream.profile.shapes import Shape

_PALLAS_NAMES = ("flash", "splash", "attention", "mha")
_PALLAS_PARTS = {"dkv": 4, "dq": 3, "bwd": 5}
"""matmuls of kernels of the backward pass: both parts compute the scores and their gradients"""
_TE_FUSED = "te_fused_attn_"
_TE_CAUSAL = (2, 3, 4, 5)
"""NVTE_Mask_Type: causal and padded causal, aligned to the top left or to the bottom right"""


@dataclass(frozen=True)
class Attention:
    """One fused attention, forward or backward; its scores stay on the chip."""

    batch: int
    """sequences × heads of the queries"""
    queries: int
    keys: int
    head: int
    """head dimension of queries and keys"""
    dtype: str
    is_backward: bool = False
    is_causal: bool = False
    window: int = 0
    """keys that a query attends to at most (sliding window); 0 if all"""
    part: int = 0
    """matmuls of a kernel that does only a part of the backward pass; 0 if it does all of it"""

    @property
    def products(self) -> int:
        """Matmuls: two forward; five backward, one of which recomputes the scores."""
        return self.part or (5 if self.is_backward else 2)

    @property
    def pairs(self) -> int:
        """Pairs of query and key that are not masked.

        A causal mask halves them: fused attention doesn't compute what it masks.
        """
        pairs = self.batch * self.queries * self.keys
        if self.is_causal:
            pairs //= 2
        return min(pairs, self.batch * self.queries * self.window) if self.window else pairs

    @property
    def flops(self) -> int:
        return self.products * 2 * self.pairs * self.head


def attention_of(call: Instruction, operands: Sequence[Shape]) -> Attention | None:
    """The attention of a custom call; None if it is none, or doesn't say its dimensions."""
    target = call.custom_call_target
    if not operands:
        return None
    if target.startswith("__cudnn$fmha"):
        return _of_cudnn(call, operands[0])
    if target.startswith(_TE_FUSED):
        return _of_transformer_engine(call, operands[0])
    if target == TPU_KERNEL:
        return _of_pallas(call, operands)
    return None


def _of_pallas(call: Instruction, operands: Sequence[Shape]) -> Attention | None:
    """JAX's flash and splash attention for TPUs, by the names of their kernels.

    From a sequence to itself, a causal mask is assumed, as decoders have it; flash attention whose
    code has no indices (`iota`) can't have one.
    """
    name = f"{call.op_name} {call.name}".lower()
    shapes = [shape for shape in operands if len(shape.dims) in (3, 4) and shape.is_float]
    if not any(word in name for word in _PALLAS_NAMES) or len(shapes) < 3:
        return None
    queries, keys = shapes[0].dims, shapes[1].dims
    if len(queries) != len(keys) or queries[-1] != keys[-1]:
        return None
    parts = [count for word, count in _PALLAS_PARTS.items() if word in call.name.lower()]
    return Attention(
        math.prod(queries[:-2]),
        queries[-2],
        keys[-2],
        head=queries[-1],
        dtype=shapes[0].dtype,
        is_backward=bool(parts),
        is_causal=queries[-2] == keys[-2] and not ("flash" in name and _has_no_indices(call)),
        part=parts[0] if parts else 0,
    )


def _has_no_indices(call: Instruction) -> bool:
    code = kernel_code(call)
    return bool(code) and b"iota" not in code


def _of_cudnn(call: Instruction, queries: Shape) -> Attention | None:
    config = backend_config(call, "cudnn_fmha_backend_config")
    shape = config.get("intermediate_tensor_shape")
    stated = shape.get("dimensions") if isinstance(shape, dict) else None
    texts = [str(one) for one in stated] if isinstance(stated, list) else []
    if len(texts) != 4 or not all(text.isdecimal() and len(text) < 12 for text in texts):
        return None
    batch, heads, rows, columns = map(int, texts)
    if not batch * heads * rows * columns:
        return None
    window = str(config.get("sliding_window_length", ""))
    return Attention(
        batch * heads,
        rows,
        columns,
        head=queries.size // (batch * heads * rows),
        dtype=queries.dtype,
        is_backward="Backward" in call.custom_call_target,
        is_causal="CAUSAL" in str(config.get("mask_type", ""))
        or config.get("is_causal_mask") is True,
        window=int(window) if window.isdecimal() and len(window) < 12 else 0,
    )


def _of_transformer_engine(call: Instruction, queries: Shape) -> Attention | None:
    stated = call_attributes(call)
    found = [stated.get(k) for k in ("input_batch", "attn_heads", "q_max_seqlen", "kv_max_seqlen")]
    head = stated.get("qk_head_dim", stated.get("head_dim"))
    if not isinstance(head, int) or head < 1:
        return None
    counts = [number for number in found if isinstance(number, int) and number > 0]
    if len(counts) < len(found):
        return None
    batch, heads, rows, columns = counts
    left = stated.get("window_size_left", -1)
    mask = stated.get("mask_type", 0)
    return Attention(
        batch * heads,
        rows,
        columns,
        head=head,
        dtype=queries.dtype,
        is_backward="backward" in call.custom_call_target,
        is_causal=mask in _TE_CAUSAL or "CAUSAL" in str(mask),
        window=left + 1 if isinstance(left, int) and left >= 0 else 0,
    )
