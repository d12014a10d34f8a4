"""Def-use chains: which instructions use a value, through tuples, loops and calls.

    start ──► done ──► get-tuple-element ──► fusion            the user
                  └──► tuple ──► ROOT of a loop's body ──► the parameter of the next iteration
                                                      └──► what comes after the loop

Values are followed through instructions that launch nothing, each element of a tuple separately.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from slipstream.machines.tpu.slices import is_slice_transfer, receive_of
from slipstream.profile.attribution.launch_sequence import launches_nothing
from slipstream.profile.program import Instruction, Program

_PASSES = ("bitcast", "opt-barrier", "optimization-barrier", "add-dependency", "domain")
_RUNS = ("while", "call", "conditional")


@dataclass(frozen=True)
class Users:
    """Users of one value."""

    instructions: frozenset[str]
    is_result: bool
    """whether it is also a result of the program"""


@dataclass
class DefUse:
    """The users of a program's values; `traced` are the instructions that have events."""

    program: Program
    traced: Container[str]
    _known: dict[str, Users] = field(default_factory=dict)

    def users(self, name: str) -> Users:
        """The users of an instruction's result; of an asynchronous one, of its done."""
        if name not in self._known:
            self._known[name] = self._find(name)
        return self._known[name]

    @cached_property
    def _followers(self) -> dict[str, list[str]]:
        """The instructions that wait for each instruction because of a control dependency."""
        found: dict[str, list[str]] = {}
        for instruction in self.program.scheduled:
            for before in instruction.control_predecessors:
                found.setdefault(before, []).append(instruction.name)
        return found

    def _find(self, name: str) -> Users:
        found: set[str] = set()
        is_result = False
        begin = self._result(self.program.starter(name) or self.program.instruction(name))
        queue: list[tuple[str, int | None]] = [(begin.name, None)]
        seen = set(queue)
        while queue:
            value, element = queue.pop()
            for user, part in self._next(value, element):
                if user == "":
                    is_result = True
                elif (event := self._event(user)) is not None and part is None and user != value:
                    found.add(event)
                elif (user, part) not in seen:
                    seen.add((user, part))
                    queue.append((user, part))
        return Users(frozenset(found - {name}), is_result)

    def _result(self, begin: Instruction) -> Instruction:
        """Where the result of an operation on a TPU arrives, if its own users only pass it on.

        Fusions between start and done carry the state of a collective; what a send to other slices
        brings arrives with the recv-done of the same collective.
        """
        if begin.opcode == "send" and is_slice_transfer(begin):
            begin = receive_of(self.program, begin) or begin
        elif "chain_id" not in begin.attributes or not begin.is_start:
            return begin
        return self.program.partner(begin.name) or begin

    def _event(self, name: str) -> str | None:
        """The name of an instruction in profiles; None if it has no events."""
        one = self.program.instruction(name)
        if launches_nothing(one) or one.opcode in _RUNS:
            return None
        inner = self.program.wrapped(name)
        known = inner.name if inner is not None else name
        return known if known in self.traced else None

    def _next(self, name: str, element: int | None) -> Iterator[tuple[str, int | None]]:
        """Where a value (or an element of a tuple) goes; an empty name means a program result."""
        value = self.program.instruction(name)
        computation = self.program.computations[value.computation]
        if value.is_root or value is computation.root:
            yield from self._returned(value, element)
        for user in computation.users.get(name, ()):
            yield from self._used(value, element, user)
        for other in self._followers.get(name, ()):
            yield other, None

    def _used(
        self, value: Instruction, element: int | None, user: Instruction
    ) -> Iterator[tuple[str, int | None]]:
        if user.opcode == "tuple":
            for place, operand in enumerate(user.operands):
                if operand == value.name:
                    # For an element of an element, the outer tuple stands for all of it.
                    yield user.name, place
        elif user.opcode == "get-tuple-element":
            if element is None or element == user.tuple_index:
                yield user.name, None
        elif user.opcode == "while":
            yield from self._entered(user.called, 0, element)
            yield user.name, element
        elif user.opcode == "call":
            for place, operand in enumerate(user.operands):
                if operand == value.name:
                    yield from self._entered(user.called, place, element)
        elif user.opcode == "conditional":
            for place, operand in enumerate(user.operands[1:]):
                if operand == value.name:
                    yield from self._entered(user.called[place : place + 1], 0, element)
        elif user.opcode in _PASSES or user.opcode.endswith("-update"):
            yield user.name, element
        else:
            yield user.name, None

    def _entered(
        self, called: tuple[str, ...], place: int, element: int | None
    ) -> Iterator[tuple[str, int | None]]:
        for name in called:
            parameters = self.program.computations[name].parameters
            if place < len(parameters):
                yield parameters[place].name, element

    def _returned(self, root: Instruction, element: int | None) -> Iterator[tuple[str, int | None]]:
        if root.computation == self.program.entry.name:
            yield "", None
            return
        caller = self.program.caller(root.computation)
        if caller is None:
            return
        if caller.opcode == "while":
            if caller.called and root.computation == caller.called[0]:
                yield from self._entered(caller.called, 0, element)
                yield caller.name, element
        elif caller.opcode in _RUNS:
            yield caller.name, element
