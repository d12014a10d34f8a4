"""Custom calls that were measured on a GPU, kept in the machine file by name and operand shapes.

    a profile of the call ──► MeasuredCall ──► [[calibration.calls]] ──► `kernel_time`

No model knows a user's own kernel; a measurement of the same call with the same shapes does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from slipstream.profile.program import Instruction, Program
from slipstream.profile.semantics.backend_config import call_name
from slipstream.profile.shapes import Shape

OF_LIBRARIES = ("__cublas", "__cudnn", "__cusolver", "__cusparse", "xla_ffi")
"""targets that models know, or whose time is Python's; their kinds are calibrated by `scales`"""

CallKey = tuple[str, tuple[str, ...]]


@dataclass(frozen=True)
class MeasuredCall:
    """One custom call, and its median time."""

    name: str
    """the target, or the name of a Pallas kernel"""
    operands: tuple[str, ...]
    """types and dimensions: `bf16[4,2048,128]`"""
    us: float
    source: str = ""

    @property
    def key(self) -> CallKey:
        return self.name, self.operands


def call_key(program: Program, call: Instruction) -> CallKey:
    """What calls must have in common to take the same time."""
    shapes = (operand.shape for operand in program.operands(call))
    return call_name(call), tuple(_text(shape) for shape in shapes)


def measured_calls(
    program: Program, us_by_name: Mapping[str, float], source: str
) -> list[MeasuredCall]:
    """The custom calls of a measured program that are no library's, each once."""
    found: dict[CallKey, MeasuredCall] = {}
    for call in program.scheduled:
        us = us_by_name.get(call.scheduling_name or call.name) or us_by_name.get(call.name)
        if call.opcode == "custom-call" and us and not is_of_library(call):
            key = call_key(program, call)
            found[key] = MeasuredCall(*key, us, source)
    return list(found.values())


def is_of_library(call: Instruction) -> bool:
    return call.custom_call_target.startswith(OF_LIBRARIES)


def measured_call(
    calibration: Mapping[str, object], program: Program, call: Instruction
) -> MeasuredCall | None:
    """The measurement of a call in a machine's calibration, if there is one."""
    rows = calibration.get("calls")
    if not isinstance(rows, list) or call.opcode != "custom-call":
        return None
    key = call_key(program, call)
    return next((found for found in map(call_from, rows) if found.key == key), None)


def call_from(row: Mapping[str, Any]) -> MeasuredCall:
    """A row of a machine file; ValueError, KeyError or TypeError if it is none."""
    operands, us = row["operands"], float(row["us"])
    if not isinstance(row["name"], str) or not isinstance(operands, list) or not us > 0:
        raise ValueError("expected a name, a list of operands and a time above 0")
    return MeasuredCall(row["name"], tuple(map(str, operands)), us, str(row.get("source", "")))


def rows_of(calls: Iterable[MeasuredCall], known: Iterable[MeasuredCall] = ()) -> list[Any]:
    """Rows of a machine file: what it knows, and new measurements over it."""
    kept = {call.key: call for call in (*known, *calls)}
    return [
        {**asdict(call), "operands": list(call.operands), "us": round(call.us, 3)}
        for call in kept.values()
    ]


def _text(shape: Shape) -> str:
    if shape.is_tuple:
        return f"({', '.join(_text(leaf) for leaf in shape.leaves())})"
    return f"{shape.dtype}[{','.join(map(str, shape.dims))}]"
