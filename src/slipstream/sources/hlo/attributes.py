"""An instruction's attributes, named and written as in HLO text.

Programs read from protos use the same notation, so that both compare equal.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Callable, Mapping
from typing import Any

from slipstream.profile.program import Attribute

_PRECISIONS = {0: "default", 1: "high", 2: "highest"}
_ALGORITHMS = {
    1: "dot_any_f8_any_f8_f32",
    2: "dot_any_f8_any_f8_f32_fast_accum",
    3: "dot_f16_f16_f16",
    4: "dot_f16_f16_f32",
    5: "dot_bf16_bf16_bf16",
    6: "dot_bf16_bf16_f32",
    7: "dot_bf16_bf16_f32_x3",
    8: "dot_bf16_bf16_f32_x6",
    9: "dot_tf32_tf32_f32",
    10: "dot_tf32_tf32_f32_x3",
    11: "dot_f32_f32_f32",
    12: "dot_f64_f64_f64",
    13: "dot_bf16_bf16_f32_x9",
}
MEGASCALE = "xla_megascale_runtime"
"""the handler of host transfers between slices"""
FRONTEND_ATTRIBUTES = (
    "_xla_host_transfer_rendezvous",
    "_xla_megascale_transfer_type",
    "_xla_megascale_reduce_operation",
    "_xla_megascale_target",
    "async_collective_name",
    "chain_id",
)
"""frontend attributes that are kept: how Megascale marks transfers between slices and the
collective that they belong to, and how XLA:TPU marks the parts of asynchronous collectives"""
_HANDLER = "_xla_host_transfer_handler_name"
ALIASING = "output_to_operand_aliasing"
"""which operands a custom call writes over"""
_TRIP_COUNT = re.compile(r'"known_trip_count"\s*:\s*\{\s*"n"\s*:\s*"?(\d+)')


def trip_count_of(backend_config: str) -> int | None:
    """The known trip count that a while's configuration records."""
    match = _TRIP_COUNT.search(backend_config)
    return int(match[1]) if match else None


def attributes_of(proto: Any) -> dict[str, Attribute]:
    """The attributes of an HloInstructionProto that determine what it computes."""
    reader = _ATTRIBUTES.get(proto.opcode)
    found = reader(proto) if reader else {}
    frontend = proto.frontend_attributes.map
    return {**found, **frontend_attributes(frontend)} if frontend else found


def frontend_attributes(frontend: Mapping[str, str]) -> dict[str, Attribute]:
    """The frontend attributes that describe a collective; callbacks of the host have some, too."""
    is_callback = _HANDLER in frontend and not is_between_slices(frontend)
    kept = () if is_callback else FRONTEND_ATTRIBUTES
    return {key: frontend[key] for key in kept if frontend.get(key)}


def is_between_slices(frontend: Mapping[str, str]) -> bool:
    """Whether a host transfer is Megascale's: it ends on another slice, not on the host."""
    return frontend.get(_HANDLER) == MEGASCALE


def _dimensions(proto: Any) -> dict[str, Attribute]:
    return {"dimensions": tuple(proto.dimensions)}


def _dot(proto: Any) -> dict[str, Attribute]:
    found = _dot_dimensions(proto.dot_dimension_numbers)
    precision = proto.precision_config
    if any(precision.operand_precision):
        names = [_PRECISIONS.get(p, "?") for p in precision.operand_precision]
        found["operand_precision"] = f"{{{','.join(names)}}}"
    found["algorithm"] = _ALGORITHMS.get(precision.algorithm, "")
    return {key: value for key, value in found.items() if value}


def _dot_dimensions(numbers: Any) -> dict[str, Attribute]:
    return {
        "lhs_batch_dims": tuple(numbers.lhs_batch_dimensions),
        "lhs_contracting_dims": tuple(numbers.lhs_contracting_dimensions),
        "rhs_batch_dims": tuple(numbers.rhs_batch_dimensions),
        "rhs_contracting_dims": tuple(numbers.rhs_contracting_dimensions),
    }


def _ragged_dot(proto: Any) -> dict[str, Attribute]:
    return _dot_dimensions(proto.ragged_dot_dimension_numbers.dot_dimension_numbers)


def _convolution(proto: Any) -> dict[str, Attribute]:
    if not proto.HasField("convolution_dimension_numbers"):
        return {}
    found: dict[str, Attribute] = {"dim_labels": _dim_labels(proto.convolution_dimension_numbers)}
    if proto.window.dimensions:
        found["window"] = _window(proto.window)
    if proto.feature_group_count > 1:
        found["feature_group_count"] = proto.feature_group_count
    if proto.batch_group_count > 1:
        found["batch_group_count"] = proto.batch_group_count
    return found


def _custom_call(proto: Any) -> dict[str, Attribute]:
    found = _convolution(proto)
    if proto.output_operand_aliasing:
        pairs = map(_aliasing, proto.output_operand_aliasing)
        found[ALIASING] = f"{{{', '.join(pairs)}}}"
    return found


def _aliasing(pair: Any) -> str:
    """`{1}: (0, {})`: the second result is written where the first operand was."""
    result, inside = (
        f"{{{','.join(map(str, index))}}}"
        for index in (pair.output_shape_index, pair.operand_shape_index)
    )
    return f"{result}: ({pair.operand_index}, {inside})"


def _dim_labels(numbers: Any) -> str:
    def labels(first: str, second: str, at: tuple[int, int], spatial: list[int]) -> str:
        places = {at[0]: first, at[1]: second, **{d: str(n) for n, d in enumerate(spatial)}}
        return "".join(places[place] for place in sorted(places))

    inputs = (numbers.input_batch_dimension, numbers.input_feature_dimension)
    kernel = (numbers.kernel_input_feature_dimension, numbers.kernel_output_feature_dimension)
    output = (numbers.output_batch_dimension, numbers.output_feature_dimension)
    return (
        f"{labels('b', 'f', inputs, numbers.input_spatial_dimensions)}_"
        f"{labels('i', 'o', kernel, numbers.kernel_spatial_dimensions)}->"
        f"{labels('b', 'f', output, numbers.output_spatial_dimensions)}"
    )


def _window(window: Any) -> str:
    dims = window.dimensions
    parts = ["size=" + "x".join(str(d.size) for d in dims)]
    if any(d.stride != 1 for d in dims):
        parts.append("stride=" + "x".join(str(d.stride) for d in dims))
    if any(d.padding_low or d.padding_high for d in dims):
        parts.append("pad=" + "x".join(f"{d.padding_low}_{d.padding_high}" for d in dims))
    if any(d.base_dilation != 1 for d in dims):
        parts.append("lhs_dilate=" + "x".join(str(d.base_dilation) for d in dims))
    if any(d.window_dilation != 1 for d in dims):
        parts.append("rhs_dilate=" + "x".join(str(d.window_dilation) for d in dims))
    if any(d.window_reversal for d in dims):
        parts.append("rhs_reversal=" + "x".join(str(int(d.window_reversal)) for d in dims))
    return f"{{{' '.join(parts)}}}"


def _slice(proto: Any) -> dict[str, Attribute]:
    def one(d: Any) -> str:
        return f"[{d.start}:{d.limit}" + (f":{d.stride}]" if d.stride != 1 else "]")

    return {"slice": f"{{{', '.join(map(one, proto.slice_dimensions))}}}"}


def _padding(proto: Any) -> dict[str, Attribute]:
    def one(d: Any) -> str:
        inner = f"_{d.interior_padding}" if d.interior_padding else ""
        return f"{d.edge_padding_low}_{d.edge_padding_high}{inner}"

    return {"padding": "x".join(map(one, proto.padding_config.dimensions))}


def _gather(proto: Any) -> dict[str, Attribute]:
    numbers = proto.gather_dimension_numbers
    return {
        "offset_dims": tuple(numbers.offset_dims),
        "collapsed_slice_dims": tuple(numbers.collapsed_slice_dims),
        "start_index_map": tuple(numbers.start_index_map),
        "index_vector_dim": numbers.index_vector_dim,
        "slice_sizes": tuple(proto.gather_slice_sizes),
    }


def _scatter(proto: Any) -> dict[str, Attribute]:
    numbers = proto.scatter_dimension_numbers
    return {
        "update_window_dims": tuple(numbers.update_window_dims),
        "inserted_window_dims": tuple(numbers.inserted_window_dims),
        "scatter_dims_to_operand_dims": tuple(numbers.scatter_dims_to_operand_dims),
        "index_vector_dim": numbers.index_vector_dim,
    }


def _constant(proto: Any) -> dict[str, Attribute]:
    literal = proto.literal
    if not proto.shape.dimensions:
        for field, spell in _SCALARS.items():
            values = getattr(literal, field)
            if len(values) > 0:
                return {"literal": spell(values)}
    return {"literal": hashlib.sha256(literal.SerializeToString()).hexdigest()[:16]}


def _bfloat16(data: bytes) -> float:
    """A bfloat16 is the upper half of a float32."""
    return float(struct.unpack("<f", b"\0\0" + data[:2].rjust(2, b"\0"))[0])


# Written as in HLO text: as many digits as the type holds.
_SCALARS: dict[str, Callable[[Any], str]] = {
    "f32s": lambda values: f"{values[0]:.9g}",
    "bf16s": lambda data: f"{_bfloat16(data):.4g}",
    "s32s": lambda values: str(values[0]),
    "preds": lambda values: "true" if values[0] else "false",
    "u32s": lambda values: str(values[0]),
    "s64s": lambda values: str(values[0]),
    "u64s": lambda values: str(values[0]),
    "f64s": lambda values: f"{values[0]:.17g}",
}

_ATTRIBUTES: dict[str, Callable[[Any], dict[str, Attribute]]] = {
    **dict.fromkeys(
        ("all-gather", "all-to-all", "broadcast", "concatenate", "iota", "reduce",
         "reduce-scatter", "reverse", "sort", "transpose"),
        _dimensions,
    ),
    "compare": lambda proto: {"direction": proto.comparison_direction},
    "constant": _constant,
    "convolution": _convolution,
    "custom-call": _custom_call,
    **dict.fromkeys(("dot", "scaled-dot"), _dot),
    "ragged-dot": _ragged_dot,
    "dynamic-slice": lambda proto: {"dynamic_slice_sizes": tuple(proto.dynamic_slice_sizes)},
    "gather": _gather,
    "pad": _padding,
    "reduce-window": lambda proto: {"window": _window(proto.window)},
    "scatter": _scatter,
    "slice": _slice,
}  # fmt: skip
