"""Recognise well-known computations (gelu, softmax, norms) by the operations in a fusion."""

from __future__ import annotations

import re
from collections.abc import Callable

from slipstream.profile.program import Computation, Instruction, Program

# The cubic coefficient of gelu's tanh approximation, in float32 and in bfloat16.
_GELU_CUBE = re.compile(r"0\.044[67]")
_ROOT_HALF = re.compile(r"0\.7071?")


def pattern_name(program: Program, computation: Computation) -> str:
    """The name of the computation in a fusion; empty if it is not a well-known one."""
    contents = _Contents(program, computation)
    for name, recognise in _PATTERNS:
        if recognise(contents):
            return name
    return _reductions(contents)


def epilogue(program: Program, computation: Computation, product: str) -> str:
    """A matrix product with its fused epilogue: `gelu(x @ w1)`, `x @ w1 + residual`."""
    contents = _Contents(program, computation)
    if contents.is_gelu:
        return f"gelu({product})"
    if contents.is_silu:
        return f"silu({product})"
    after = _after_dot(computation)
    if "add" in after:
        return f"{product} + residual"
    if "exponential" in after:
        return f"exp({product})"
    return product


def _after_dot(computation: Computation) -> set[str]:
    """The opcodes of all instructions that depend on the dot."""
    reached: set[str] = set()
    opcodes: set[str] = set()
    for instruction in computation.instructions:
        if instruction.opcode == "dot":
            reached.add(instruction.name)
        elif not reached.isdisjoint(instruction.operands):
            reached.add(instruction.name)
            opcodes.add(instruction.opcode)
    return opcodes


class _Contents:
    """The contents of a fused computation, and predicates on them."""

    def __init__(self, program: Program, computation: Computation) -> None:
        self.computation = computation
        self.reductions = [
            kind for i in computation.instructions if (kind := reduction(program, i))
        ]
        self.opcodes = [i.opcode for i in computation.instructions]
        self.constants = [str(i.attributes.get("literal", "")) for i in computation.instructions]
        self.paths = [i.op_name for i in computation.instructions]

    def has(self, *opcodes: str) -> bool:
        return all(opcode in self.opcodes for opcode in opcodes)

    def constant(self, pattern: re.Pattern[str]) -> bool:
        return any(pattern.match(value) for value in self.constants)

    def reduces(self, kind: str) -> bool:
        return kind in self.reductions

    def within(self, function: str) -> bool:
        """Whether some operation comes from a jitted function of that name."""
        return any(f"jit({function})" in path for path in self.paths)

    @property
    def is_backward(self) -> bool:
        return any("transpose(" in p and "rematted" not in p for p in self.paths)

    @property
    def is_gelu(self) -> bool:
        tanh = self.has("tanh") and self.constant(_GELU_CUBE)
        erf = self.has("erf") and self.constant(_ROOT_HALF)
        return tanh or erf or self.within("gelu")

    @property
    def is_silu(self) -> bool:
        return self.within("silu") or self.has("logistic", "multiply")

    @property
    def is_softmax(self) -> bool:
        return self.has("exponential") and self.reduces("max") and self.has("subtract")

    @property
    def is_norm(self) -> bool:
        return self.has("rsqrt", "reduce") and self.has("multiply")


_PATTERNS: tuple[tuple[str, Callable[[_Contents], bool]], ...] = (
    ("gelu′", lambda c: c.is_gelu and c.is_backward),
    ("gelu", lambda c: c.is_gelu),
    ("silu′", lambda c: c.is_silu and c.is_backward),
    ("silu", lambda c: c.is_silu),
    ("softmax′", lambda c: c.is_softmax and c.is_backward),
    ("softmax", lambda c: c.is_softmax),
    ("layer norm", lambda c: c.is_norm and c.has("subtract") and not c.is_backward),
    ("rms norm", lambda c: c.is_norm and not c.is_backward),
    ("norm′", lambda c: c.is_norm),
)


def reduction(program: Program, instruction: Instruction) -> str:
    """What a reduce computes: sum, max, min, product; empty for anything else."""
    if instruction.opcode not in ("reduce", "reduce-window") or not instruction.called:
        return ""
    root = program.computations[instruction.called[0]].root
    return _REDUCERS.get(root.opcode, "reduce")


_REDUCERS = {
    "add": "sum",
    "maximum": "max",
    "minimum": "min",
    "multiply": "product",
    "and": "all",
    "or": "any",
    "tuple": "argmax",
}


def _reductions(contents: _Contents) -> str:
    kinds = dict.fromkeys(contents.reductions)
    if not kinds:
        return ""
    squares = _squares(contents.computation)
    inner = "exp" if contents.has("exponential") else "x²" if squares else ""
    words = " and ".join(kinds)
    return f"{words} of {inner}" if inner else f"reduce {words}"


def _squares(computation: Computation) -> bool:
    """Whether something is multiplied by itself before it is summed."""
    return any(
        i.opcode == "multiply" and len(set(i.operands)) == 1 for i in computation.instructions
    )
