"""Soundness: find known miscompilations in a compiled program.

A bitcast reinterprets memory, so its operand and its result must have the same number of bytes.
XLA's verifier rejects any other (`HandleBitcast` in hlo_verifier.cc), but does not run after every
pass. One pass makes such bitcasts:

    f32[512]    ─────────────────────────► f32[512]  ┐
    bf16[2,512] ── bitcast: 2048 bytes ──► f32[1024] ┴ concatenate ─► all-reduce ─► slices …
                   read as 4096                        two bf16 are added as if they were one f32

https://github.com/openxla/xla/blob/main/xla/hlo/transforms/collectives/all_reduce_contiguous.cc
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from slipstream.profile.program import Instruction, Program
from slipstream.profile.shapes import BITS, Shape
from slipstream.units import format_bytes

PASS = "all-reduce-contiguous"
FLAG = "xla_disable_hlo_passes"
SOURCE = (
    "https://github.com/openxla/xla/blob/main/xla/hlo/transforms/collectives/"
    "all_reduce_contiguous.cc"
)
VERIFIER = "https://github.com/openxla/xla/blob/main/xla/service/hlo_verifier.cc"
NEAR = 6
"""most instructions between a bitcast and an all-reduce that is related to it"""
_CARRIERS = (
    "bitcast", "reshape", "copy", "concatenate", "slice", "dynamic-slice", "fusion", "parameter",
    "tuple", "get-tuple-element", "all-reduce-done", "copy-start", "copy-done",
)  # fmt: skip
"""opcodes that pass bytes on, for the search for an all-reduce"""


@dataclass(frozen=True)
class WrongBitcast:
    """A bitcast whose operand and result differ in size."""

    instruction: str
    source: str
    """the shape of its operand"""
    result: str
    """the shape of its result"""
    source_bytes: int
    result_bytes: int
    all_reduce: str = ""
    """`feeds` or `follows` if an all-reduce is near, else empty"""

    def __str__(self) -> str:
        before, after = format_bytes(self.source_bytes), format_bytes(self.result_bytes)
        return f"{self.instruction} reads {self.source} ({before}) as {self.result} ({after})"


@dataclass(frozen=True)
class Soundness:
    """The wrong instructions of a program, if it has any."""

    bitcasts: tuple[WrongBitcast, ...] = ()
    passes_off: str = ""
    """passes that are already disabled, separated by commas: the fix must keep them disabled"""

    @property
    def is_sound(self) -> bool:
        return not self.bitcasts

    @property
    def is_known(self) -> bool:
        """Whether the pass known for this made them."""
        return any(one.all_reduce for one in self.bitcasts)

    @property
    def seen(self) -> str:
        """What was seen, as part of a sentence; empty if the program is sound."""
        if self.is_sound:
            return ""
        more = len(self.bitcasts) - 1
        others = f", and {more} more bitcast{'s' if more > 1 else ''} like it" if more else ""
        return f"{self.first}{others}"

    @property
    def first(self) -> WrongBitcast:
        """The one to show: preferably one that feeds an all-reduce."""
        return next((one for one in self.bitcasts if one.all_reduce == "feeds"), self.bitcasts[0])

    @property
    def why(self) -> str:
        """Why it is wrong."""
        if self.is_known:
            return (
                f"XLA's pass {PASS} combines all-reduces of several types as if all had the type "
                "of the first, so values of the other types are summed as the wrong type: their "
                "sums are garbage and may be NaN"
            )
        return "a bitcast must not change the number of bytes, so this one reads the wrong memory"

    @property
    def fix(self) -> str:
        """The setting to use."""
        if self.is_known:
            return f"XLA_FLAGS=--{FLAG}={f'{self.passes_off},{PASS}'.lstrip(',')}"
        return "XLA_FLAGS=--xla_dump_to=DIR, and report the program at github.com/openxla/xla"

    @property
    def text(self) -> str:
        """Everything in one line; empty if the program is sound."""
        if self.is_sound:
            return ""
        return f"the program's results are wrong: {self.seen}. {_capital(self.why)}. {self._to_do}"

    @property
    def _to_do(self) -> str:
        return f"Type: {self.fix}" if self.is_known else f"Set {self.fix}"


def soundness(program: Program) -> Soundness:
    """Check a program; arrays in tiles, as on TPUs, are padded, so their sizes may differ."""
    found = []
    for computation in program.computations.values():
        for one in computation.instructions:
            operand = computation.by_name.get(one.operands[0]) if one.operands else None
            if one.opcode != "bitcast" or operand is None:
                continue
            before, after = _bytes(operand.shape), _bytes(one.shape)
            if before is None or after is None or before == after:
                continue
            near = _all_reduce(program, one)
            shapes = _plain(operand.shape), _plain(one.shape)
            found.append(WrongBitcast(one.name, *shapes, before, after, near))
    return Soundness(tuple(found), program.flags.get(FLAG, ""))


def _bytes(shape: Shape) -> int | None:
    """Bytes of an array; None if unknown: whole tiles may hold more than the array.

    Whether types smaller than a byte are packed depends on layouts that are not kept here.
    """
    bits = BITS.get(shape.dtype, 0)
    return None if shape.is_tuple or bits < 8 or shape.tiles else shape.bytes


def _plain(shape: Shape) -> str:
    return f"{shape.dtype}[{','.join(map(str, shape.dims))}]"


def _all_reduce(program: Program, bitcast: Instruction) -> str:
    """`feeds` if an all-reduce comes after the bitcast, `follows` if one comes before it."""
    if _reaches(program, bitcast, _users):
        return "feeds"
    return "follows" if _reaches(program, bitcast, _operands) else ""


Step = Callable[[Program, Instruction], Iterable[Instruction]]


def _reaches(program: Program, start: Instruction, step: Step) -> bool:
    here, seen = [start], {start.name}
    for _ in range(NEAR):
        there = [n for one in here for n in step(program, one) if n.name not in seen]
        if any(one.opcode in ("all-reduce", "all-reduce-start") for one in there):
            return True
        seen.update(one.name for one in there)
        here = [one for one in there if one.opcode in _CARRIERS]
    return False


def _users(program: Program, one: Instruction) -> Iterator[Instruction]:
    computation = program.computations[one.computation]
    yield from computation.users.get(one.name, ())
    caller = program.caller(one.computation)
    if one.is_root and caller is not None and caller.opcode == "fusion":
        yield caller


def _operands(program: Program, one: Instruction) -> Iterator[Instruction]:
    yield from program.operands(one)
    caller = program.caller(one.computation)
    if one.parameter_number is not None and caller is not None and caller.opcode == "fusion":
        yield from program.operands(caller)[one.parameter_number :][:1]


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
