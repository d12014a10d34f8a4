"""Features of an op that survive a recompilation: work, origin, neighbours, contents.

Names and positions don't survive. Neighbours are compared by colour refinement (Weisfeiler-Leman):
an instruction's first colour is what it computes; each round adds the colours of its operands and
users, so that equal instructions get different colours as soon as their surroundings differ.

    round 0    ● → ● → ▲         round 1    ◐ → ◑ → ▲
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from slipstream.analyses.diff.step_samples import StepSamples
from slipstream.analyses.ops import UNATTRIBUTED
from slipstream.profile.attribution.launch_sequence import launches_nothing
from slipstream.profile.profile import Profile
from slipstream.profile.program import Instruction, Program
from slipstream.profile.semantics.names import source
from slipstream.profile.semantics.signatures import (
    NO_WORK,
    inside,
    product_signature,
    result_shape,
    work_signature,
)
from slipstream.profile.shapes import Shape

ROUNDS = 3
_HEAVY = ("dot", "scaled-dot", "ragged-dot", "convolution", "custom-call", "reduce", "scatter")
_HEAVY_WEIGHT = 8
"""how much more a product or reduction counts in a fusion than an addition"""
_NUMBERS = re.compile(r"(\.(remat|clone|\d+))+$")
# XLA appends what it did to an operation to its op name.
_ADDED = re.compile(r"\[.*?\]")


@dataclass(frozen=True, eq=False)
class DiffOp:
    """One op of one side, and its features."""

    samples: StepSamples
    order: int
    """its position in the program's schedule"""
    colours: tuple[int, ...] = ()
    """its colours after 0, 1, … rounds"""
    program: Program | None = None
    instruction: Instruction | None = None
    """for an asynchronous operation, its start"""

    @property
    def name(self) -> str:
        op = self.samples.op
        return op.instruction if op.instruction != UNATTRIBUTED else op.description

    @property
    def program_name(self) -> str:
        return self.samples.op.program.partition("(")[0]

    @property
    def executions(self) -> float:
        return self.samples.executions

    @cached_property
    def work(self) -> Hashable:
        if self.program is None or self.instruction is None:
            return None
        return work_signature(self.program, self.instruction)

    @cached_property
    def product(self) -> Hashable:
        if self.program is None or self.instruction is None:
            return None
        return product_signature(self.program, self.instruction) or None

    @cached_property
    def op_name(self) -> str:
        return _ADDED.sub("", self.instruction.op_name) if self.instruction is not None else ""

    @cached_property
    def source(self) -> str:
        if self.program is None or self.instruction is None:
            return ""
        return source(self.program, self.instruction)

    @property
    def phase(self) -> str:
        return self.samples.op.phase

    @cached_property
    def shapeless(self) -> Hashable:
        """Its shapes without layouts: another layout means another kernel, but the same purpose."""
        if self.program is None or self.instruction is None:
            return None
        operands = sorted(_plain(o.shape) for o in self.program.operands(self.instruction))
        opcode = self.instruction.opcode.removesuffix("-start")
        return opcode, _plain(result_shape(self.instruction)), tuple(operands)

    @cached_property
    def label(self) -> str:
        """Its name without numbers, for programs that the profile does not contain."""
        return _NUMBERS.sub("", self.name)

    @cached_property
    def contents(self) -> Mapping[Hashable, int]:
        """The operations inside it, weighted by how much they characterise it."""
        if self.program is None or self.instruction is None:
            return {}
        exchanged = self.instruction.collective
        if exchanged is not None:
            operands = self.program.operands(self.instruction)
            shapes = [_plain(s) for o in operands for s in o.shape.leaves()]
            return Counter((exchanged.kind, shape) for shape in shapes)
        found: Counter[Hashable] = Counter()
        for one in inside(self.program, self.instruction) or [self.instruction]:
            if one.opcode not in NO_WORK:
                weight = _HEAVY_WEIGHT if one.opcode in _HEAVY else 1
                found[_token(one)] += weight
        return found


def diff_ops(profile: Profile, seen: tuple[StepSamples, ...]) -> list[DiffOp]:
    """The ops of a profile with their features, in schedule order."""
    graphs: dict[str, Colours] = {}
    found: list[DiffOp] = []
    for samples in seen:
        op = samples.op
        program = profile.programs.get(op.program)
        if program is None or op.instruction not in program:
            found.append(DiffOp(samples, len(found)))
            continue
        if op.program not in graphs:
            graphs[op.program] = Colours(program)
        graph = graphs[op.program]
        instruction = program.instruction(op.instruction)
        instruction = program.starter(op.instruction) or instruction
        found.append(DiffOp(samples, *graph.place(instruction), program, instruction))
    return sorted(found, key=lambda item: (item.program_name, item.order))


@dataclass
class Colours:
    """The colours of a program's instructions, and their order in the schedule."""

    program: Program
    of: dict[str, tuple[int, ...]] = field(default_factory=dict)
    order: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        computations = [self.program.computations[name] for name in self._reached()]
        nodes = [i for computation in computations for i in computation.instructions]
        current = {i.name: hash(self._first(i)) for i in nodes}
        rounds = [current]
        for _ in range(ROUNDS):
            after = {}
            for computation in computations:
                for i in computation.instructions:
                    users = computation.users.get(i.name, ())
                    read = tuple(current.get(name, 0) for name in i.operands)
                    used = tuple(sorted(current[user.name] for user in users))
                    after[i.name] = hash((current[i.name], read, used))
            current = after
            rounds.append(current)
        self.of = {name: tuple(one[name] for one in rounds) for name in current}

    def place(self, instruction: Instruction) -> tuple[int, tuple[int, ...]]:
        """Its position in the schedule and its colours; inside a fusion, those of the fusion.

        Profiles of older XLA versions name instructions inside fusions.
        """
        outer: Instruction | None = instruction
        while outer is not None and outer.name not in self.order:
            outer = self.program.caller(outer.computation)
        if outer is None:
            return len(self.order), ()
        return self.order[outer.name], self.of[outer.name]

    def _first(self, instruction: Instruction) -> Hashable:
        if launches_nothing(instruction) or instruction.opcode in ("while", "conditional", "call"):
            return instruction.opcode, _plain(instruction.shape)
        return work_signature(self.program, instruction)

    def _reached(self) -> list[str]:
        """The computations that run instruction by instruction; also sets `order`."""
        found: dict[str, None] = {}

        def visit(name: str) -> None:
            if name in found or name not in self.program.computations:
                return
            found[name] = None
            for instruction in self.program.computations[name].instructions:
                self.order[instruction.name] = len(self.order)
                if instruction.opcode in ("while", "conditional", "call"):
                    for called in instruction.called:
                        visit(called)

        visit(self.program.entry.name)
        return list(found)


def _token(instruction: Instruction) -> Hashable:
    """Identifies an operation inside a fusion: by the JAX operation it comes from, if known."""
    origin = _ADDED.sub("", instruction.op_name) if "/" in instruction.op_name else ""
    line = instruction.source_line or 0
    if origin or line:
        return origin, instruction.source_file, line
    return instruction.opcode, _plain(instruction.shape)


def _plain(shape: Shape) -> str:
    """A shape without layout, without dimensions of size 1 and without their order."""
    if shape.elements:
        return "(" + ",".join(_plain(element) for element in shape.elements) + ")"
    return f"{shape.dtype}{sorted(size for size in shape.dims if size != 1)}"
