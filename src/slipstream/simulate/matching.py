"""Measured costs for a program's instructions: by name, or by what they compute.

Names are XLA's to choose: another flag, another version, and `fusion.12` is something else.  Where
the program that was measured is known, a name counts only if it stands for the same work there;
an instruction whose name is new takes the mean cost of those that do the same work.  A product that
another kernel did (Triton's for cuBLAS's, say) is better known from that than from a model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from slipstream.costs.lookups import lookup_name
from slipstream.costs.table import Cost, CostTable
from slipstream.machines.machine import Estimate
from slipstream.profile.categories import category
from slipstream.profile.flops import work as work_of
from slipstream.profile.launches import is_silent
from slipstream.profile.program import Collective, Instruction, Program
from slipstream.profile.shapes import Shape
from slipstream.simulate.streams import result_shape

Work = tuple[object, ...]
_PRODUCTS = ("matmul", "convolution", "attention")
_MULTIPLIES = ("dot", "scaled-dot", "ragged-dot", "convolution", "custom-call")
_QUIET = ("parameter", "constant", "bitcast", "tuple", "get-tuple-element")


class Measured:
    """What a recording says an instruction of a program costs."""

    def __init__(self, program: Program, costs: CostTable, source: Program | None = None) -> None:
        self.program = program
        self.source = source
        fingerprint = source.fingerprint if source is not None else program.fingerprint
        self.costs: Mapping[str, Cost] = costs.of(fingerprint)
        self.by_work: dict[Work, list[float]] = {}
        self.by_product: dict[Work, list[float]] = {}
        if source is not None:
            for instruction, us in self.all():
                self.by_work.setdefault(work(source, instruction), []).append(us)
                if key := product(source, instruction):
                    self.by_product.setdefault(key, []).append(us)

    def estimate(self, instruction: Instruction) -> Estimate | None:
        """What one execution costs; None where nothing that was measured fits."""
        named = self._by_name(self.program, instruction)
        if self.source is None:
            return _measured(named, "in the recording") if named is not None else None
        key = work(self.program, instruction)
        if named is not None and self._is_same(instruction, key):
            return _measured(named, "in the recording")
        if same := self.by_work.get(key):
            return _measured(sum(same) / len(same), "the same work, in the recording")
        if alike := self.by_product.get(product(self.program, instruction)):
            mean = sum(alike) / len(alike)
            return Estimate(mean, "calibrated", "", "the same product, by another kernel")
        return None

    def all(self) -> Iterator[tuple[Instruction, float]]:
        """Every instruction that was measured, and its microseconds, where its program is known."""
        source = self.source
        for instruction in source.scheduled if source is not None else ():
            if not is_silent(instruction):
                us = self._by_name(source, instruction) if source is not None else None
                if us is not None:
                    yield instruction, us

    def _by_name(self, program: Program, instruction: Instruction) -> float | None:
        inner = program.wrapped(instruction.name) if instruction.is_start else None
        names = [instruction.name, *([inner.name] if inner is not None else [])]
        for name in (*names, lookup_name(program, instruction.name)):
            if name in self.costs:
                return self.costs[name].us
        return None

    def _is_same(self, instruction: Instruction, key: Work) -> bool:
        source = self.source
        if source is None or source is self.program:
            return True
        if instruction.name not in source:
            return False
        return work(source, source.instruction(instruction.name)) == key


def work(program: Program, instruction: Instruction) -> Work:
    """What an instruction computes, whatever it is called and whether it is asynchronous."""
    inner = program.wrapped(instruction.name) if instruction.is_start else None
    done = inner or instruction
    collective = instruction.collective or done.collective
    return (
        done.opcode.removesuffix("-start"),
        str(result_shape(done)),
        tuple(str(operand.shape) for operand in program.operands(instruction)),
        _contents(program, done) if collective is None else (),
        done.custom_call_target,
        _exchange(collective),
    )


def product(program: Program, instruction: Instruction) -> Work:
    """Which matrix product, convolution or attention it is, whichever kernel does it; else ().

    What is fused to it doesn't count: it is a small part, and differs from kernel to kernel.
    """
    kind = category(program, instruction)
    if kind not in _PRODUCTS:
        return ()
    names = [name for name in instruction.called if name in program.computations]
    inside = [i for name in names for i in program.computations[name].instructions]
    flops = [work_of(program, i).flops for i in inside if i.opcode in _MULTIPLIES]
    total = sum(flops) if flops else work_of(program, instruction).flops
    # The result decides where memory is what the product waits for.
    return (kind, total, sum(leaf.bytes for leaf in _results(instruction))) if total else ()


def _results(instruction: Instruction) -> list[Shape]:
    """What it computes; a library call's scratch memory is a last result of bytes."""
    leaves = list(result_shape(instruction).leaves())
    return leaves[:-1] if len(leaves) > 1 and leaves[-1].dtype in ("s8", "u8") else leaves


def _measured(us: float, why: str) -> Estimate:
    return Estimate(us, "measured", "", why)


def _contents(program: Program, instruction: Instruction) -> tuple[tuple[str, str], ...]:
    """The operations inside, in any order.

    Not `Program.canonical`: text leaves out what protos have (constants, some attributes), so that
    one fusion has two canonical forms.
    """
    names = [name for name in instruction.called if name in program.computations]
    inside = [i for name in names for i in program.computations[name].instructions]
    return tuple(sorted((i.opcode, str(i.shape)) for i in inside if i.opcode not in _QUIET))


def _exchange(collective: Collective | None) -> tuple[object, ...]:
    if collective is None:
        return ()
    return collective.kind, collective.bytes, collective.group_size
