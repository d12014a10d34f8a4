"""Readable names, from what JAX and XLA leave in a program.

JAX records where an operation comes from in its op name:

    jit(step)/transpose(jvp(Model))/block/mlp/checkpoint/rematted_computation/dot_general
    ─────────  ────────┬──────────  ────┬────  ───────────────┬─────────────   ────┬─────
    program     transformations,      named              marks of remat        primitive
                around a name         scopes

`phase` and `scope` parse it; `describe` says what an instruction does, from what it contains.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import PurePosixPath
from weakref import WeakKeyDictionary, ref

from slipstream.profile.program import Computation, Instruction, Program
from slipstream.profile.semantics.dataflow import producer
from slipstream.profile.semantics.descriptions import describe, sums

__all__ = ["PHASES", "describe", "is_jax_word", "phase", "phase_of", "scope", "source"]

PHASES = ("forward", "backward", "remat", "optimizer", "other")

_OPTIMIZER = re.compile(
    r"(?:^|[/._])(?:optimizer|optimiser|optax|adamw?|adafactor|sgd|lion|lamb|muon|momentum"
    r"|apply_updates|apply_gradients|update_params|clip_by_global_norm)(?:$|[/._(])",
    re.IGNORECASE,
)
_TRANSPOSED = re.compile(r"(?:^|[/(])transpose\(")
_DIFFERENTIATED = re.compile(r"(?:^|[/(])jvp\(")
_WRAPPED = re.compile(r"([\w.\-]+)\((.*)\)$")
# Wrappers around a name to keep; inside jit(…) there is only the name of a function.
_TRANSFORMATIONS = frozenset(("jvp", "transpose", "vmap", "pmap", "checkpoint", "remat", "named"))
_MACHINERY = frozenset(
    (
        "while", "body", "cond", "scan", "branch", "checkpoint", "remat", "remat2", "einsum",
        "rematted_computation", "closed_call", "core_call", "pjit", "jit", "eval_jaxpr", "main",
        "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr", "custom_lin", "shard_map",
        "xla_call", "xla_pmap", "named_call", "run_state", "core_closed_call",
    )
)  # fmt: skip
_METHOD = re.compile(r"[\w<>]+\.[\w<>.]+")
_BRANCH = re.compile(r"branch_\d+_fun")


def is_jax_word(word: str) -> bool:
    """Whether JAX itself writes this word into op names, or optimizers are known by it."""
    is_own = word in _MACHINERY or word in _TRANSFORMATIONS or _BRANCH.fullmatch(word)
    return bool(is_own or _OPTIMIZER.fullmatch(word))


def phase(op_name: str) -> str:
    """The phase of the training step that an op name belongs to, judged by the name alone.

    `rematted_computation` means remat, `transpose(…)` backward, `jvp(…)` forward, and a scope or
    function named after an optimizer means optimizer.  Anything else is "other"; `phase_of` also
    uses the program and can tell more.
    """
    if "rematted_computation" in op_name:
        return "remat"
    if _TRANSPOSED.search(op_name):
        return "backward"
    if _OPTIMIZER.search(op_name):
        return "optimizer"
    if _DIFFERENTIATED.search(op_name):
        return "forward"
    return "other"


def phase_of(program: Program, instruction: Instruction) -> str:
    """The phase of the training step that an instruction belongs to.

    If its own name doesn't tell, the operations fused into it vote.  What then remains and depends
    on gradients (on anything in the backward pass) updates the weights: optimizer.
    """
    phases = _phases.get(program)
    if phases is None:
        phases = _phases[program] = _Phases(program)
    return phases.of(instruction)


def scope(op_name: str) -> str:
    """The named scopes and modules of an op name, such as `block/mlp`; empty if there are none."""
    return _scope(op_name)


def source(program: Program, instruction: Instruction) -> str:
    """The source line of an instruction, such as `model.py:24`; empty if unknown.

    A sum or a transfer that XLA added has that of the operation which computed its values.
    """
    own = _own_source(program, instruction)
    if own or not (sums(instruction) or instruction.opcode == "send"):
        return own
    made = producer(program, instruction)
    return _own_source(program, made) if made is not None else ""


def _own_source(program: Program, instruction: Instruction) -> str:
    for candidate in (instruction, *_inside(program, instruction)):
        if candidate.source_file:
            file = PurePosixPath(candidate.source_file.replace("\\", "/")).name
            return f"{file}:{candidate.source_line}" if candidate.source_line else file
    return ""


@lru_cache(maxsize=16384)
def _scope(op_name: str) -> str:
    elements = _elements(op_name)
    if elements and not _WRAPPED.match(elements[-1]):
        elements = elements[:-1]
    names: list[str] = []
    for element in elements:
        name = _unwrapped(element)
        is_name = name and name not in _MACHINERY and "->" not in name
        if is_name and not _METHOD.fullmatch(name) and not _BRANCH.fullmatch(name):
            names.append(name)
    return "/".join(names)


def _unwrapped(element: str) -> str:
    """`Model` for `transpose(jvp(Model))`; empty for `jit(f)`, which is not a named scope."""
    while (match := _WRAPPED.match(element)) is not None:
        if match[1] not in _TRANSFORMATIONS:
            return ""
        element = match[2]
    return element


@lru_cache(maxsize=16384)
def _elements(op_name: str) -> tuple[str, ...]:
    """The elements of the path; slashes inside brackets don't separate.

    XLA joins the names of merged operations with semicolons; the first one counts.
    """
    elements: list[str] = []
    depth, start = 0, 0
    for at, character in enumerate(op_name):
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif depth <= 0 and character == ";":
            op_name = op_name[:at]
            break
        elif depth <= 0 and character == "/":
            elements.append(op_name[start:at])
            start = at + 1
    elements.append(op_name[start:])
    return tuple(element for element in elements if element)


def _inside(program: Program, instruction: Instruction) -> tuple[Instruction, ...]:
    if not instruction.called or instruction.opcode in ("while", "conditional", "call"):
        return ()
    computation = program.computations.get(instruction.called[0])
    return computation.instructions if computation else ()


class _Phases:
    """The phases of a program's instructions."""

    def __init__(self, program: Program) -> None:
        # `_phases` keeps this as long as the program exists, which must not be forever.
        self._program = ref(program)
        self.after: dict[str, frozenset[str]] = {}
        self.found: dict[tuple[str, str], str] = {}
        self.named: dict[tuple[str, str], str] = {}
        self.has_names: dict[str, bool] = {}

    @property
    def program(self) -> Program:
        found = self._program()
        assert found is not None
        return found

    def of(self, instruction: Instruction) -> str:
        key = (instruction.computation, instruction.name)
        if key not in self.found:
            self.found[key] = self._decide(instruction)
        return self.found[key]

    def _decide(self, instruction: Instruction) -> str:
        named = self._from_names(instruction)
        if named != "other":
            return named
        if (starter := self.program.starter(instruction.name)) is not None:
            return self.of(starter)
        computation = self.program.computations[instruction.computation]
        if "/" not in instruction.op_name and (inherited := self._inherited(instruction)):
            return inherited
        if computation.name not in self.after:
            self.after[computation.name] = self._uses_gradients(computation)
        uses = instruction.name in self.after[computation.name]
        return "optimizer" if uses and instruction.opcode not in _PLUMBING else "other"

    def _inherited(self, instruction: Instruction) -> str:
        """The phase of an instruction without op name, such as a cast or copy that XLA added.

        It has the phase of its users; a collective that sums has that of its operands.
        """
        computation = self.program.computations[instruction.computation]
        is_sum = sums(instruction)
        # Dumps may be stripped of all names; then there is nothing to look for.
        queue, seen = [instruction] if self._has_names(computation) else [], {instruction.name}
        while queue and len(seen) < 64:
            value = queue.pop(0)
            users = computation.users.get(value.name, ())
            for other in computation.operands(value) if is_sum else users:
                named = self._from_names(other)
                if named != "other":
                    return named
                if other.name not in seen and "/" not in other.op_name:
                    seen.add(other.name)
                    queue.append(other)
        if is_sum and (made := producer(self.program, instruction)) is not None:
            return phase(made.op_name).replace("other", "")
        loop = self.program.loop_of(instruction.name)
        return phase(loop.op_name).replace("other", "") if loop is not None else ""

    def _has_names(self, computation: Computation) -> bool:
        if computation.name not in self.has_names:
            names = map(self._from_names, computation.instructions)
            self.has_names[computation.name] = any(name != "other" for name in names)
        return self.has_names[computation.name]

    def _from_names(self, instruction: Instruction) -> str:
        """The phase by its op name, or by a vote of the op names fused into it."""
        key = (instruction.computation, instruction.name)
        if key not in self.named:  # a value with a thousand users is asked a thousand times
            self.named[key] = self._by_vote(instruction)
        return self.named[key]

    def _by_vote(self, instruction: Instruction) -> str:
        named = phase(instruction.op_name)
        # A full path without marks is information too; a bare `reduce_sum` is not.
        if named != "other" or "/" in instruction.op_name:
            return named
        votes: dict[str, int] = {}
        for inner in _inside(self.program, instruction):
            vote = phase(inner.op_name)
            if vote != "other":
                votes[vote] = votes.get(vote, 0) + 1
        return max(votes, key=lambda vote: votes[vote]) if votes else "other"

    def _uses_gradients(self, computation: Computation) -> frozenset[str]:
        after: set[str] = set()
        for instruction in computation.instructions:
            is_backward = phase(instruction.op_name) == "backward"
            if is_backward or not after.isdisjoint(instruction.operands):
                after.add(instruction.name)
        return frozenset(after)


_PLUMBING = frozenset(("tuple", "get-tuple-element", "bitcast", "parameter", "constant"))
_phases: WeakKeyDictionary[Program, _Phases] = WeakKeyDictionary()
