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
from slipstream.profile.launches import is_silent
from slipstream.profile.program import Instruction, Program
from slipstream.profile.signatures import Work, product, work


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


def _measured(us: float, why: str) -> Estimate:
    return Estimate(us, "measured", "", why)
