"""Fingerprints of compiled programs: hashes without names and source positions.

work       the instructions in any order: what XLA compiled before scheduling
schedule   the instructions in the order in which they run

Candidates with the same schedule are the same program. Candidates with the same work differ only in
their schedules.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from slipstream.profile.program import Computation, Instruction, Program

_ESTIMATES = re.compile(r'"reification_cost":\[[^\]]*\],?|"[\w.]*fingerprint[\w.]*":"[^"]*",?')
"""XLA's own estimates, which are not part of the program"""


@dataclass(frozen=True)
class Fingerprint:
    work: str
    schedule: str


def fingerprint_of(program: Program) -> Fingerprint:
    """Both hashes of a program."""
    return _Hashes(program).of(program.entry.name)


class _Hashes:
    """Hashes of computations, each computed once."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._known: dict[str, Fingerprint] = {}

    def of(self, name: str) -> Fingerprint:
        if name not in self._known:
            # Stops recursion: XLA's computations never call themselves, but hand-written ones may.
            self._known[name] = Fingerprint("", "")
            self._known[name] = self._computation(self._program.computations[name])
        return self._known[name]

    def _computation(self, computation: Computation) -> Fingerprint:
        works: dict[str, str] = {}
        schedules: dict[str, str] = {}
        # An operand comes before its users in every schedule.
        for instruction in computation.instructions:
            inner = [self.of(c) for c in instruction.called if c in self._program.computations]
            works[instruction.name] = _hash(instruction, works, [one.work for one in inner])
            called = [one.schedule for one in inner]
            schedules[instruction.name] = _hash(instruction, schedules, called)
        root = computation.root.name
        work = _digest([works.get(root, ""), *sorted(works.values())])
        return Fingerprint(work, _digest([schedules.get(root, ""), *schedules.values()]))


def _hash(instruction: Instruction, known: dict[str, str], called: list[str]) -> str:
    collective = instruction.collective
    return _digest(
        [
            instruction.opcode,
            str(instruction.shape),
            *(known.get(operand, "") for operand in instruction.operands),
            *called,
            repr(sorted(instruction.attributes.items())),
            str(instruction.parameter_number),
            str(instruction.tuple_index),
            str(instruction.trip_count),
            instruction.fusion_kind,
            instruction.custom_call_target,
            _ESTIMATES.sub("", instruction.backend_config),
            repr((collective.kind, collective.replica_groups, collective.source_target_pairs))
            if collective is not None
            else "",
        ]
    )


def _digest(parts: list[str]) -> str:
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:32]
