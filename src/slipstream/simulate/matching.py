"""Measured costs for a program's instructions: by name, or by what they compute.

XLA chooses names: with another flag or version, `fusion.12` is something else. If the measured
program is known, a name only counts if it stands for the same work there; an instruction with a new
name takes the mean cost of those that do the same work. A matmul that another kernel ran (Triton
instead of cuBLAS, say) is better known from that than from a model; since the two kernels move
different bytes and fuse different operations, its time is scaled by the ratio of the models.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

from slipstream.costs.scheduler_names import lookup_name
from slipstream.costs.table import Cost, CostTable
from slipstream.machines.machine import Estimate
from slipstream.profile.attribution.launch_sequence import launches_nothing
from slipstream.profile.program import Instruction, Program
from slipstream.profile.semantics.signatures import Signature, product_signature, work_signature

Model = Callable[[Program, Instruction], Estimate]
MOST_RATIO = 4.0
"""kernels whose modelled times differ by more are too different to compare"""


class CostMatcher:
    """Finds the measured cost of a program's instructions in a recording."""

    def __init__(
        self,
        program: Program,
        costs: CostTable,
        source: Program | None = None,
        model: Model | None = None,
    ) -> None:
        self.program = program
        self.source = source
        self.model = model
        fingerprint = source.fingerprint if source is not None else program.fingerprint
        self.costs: Mapping[str, Cost] = costs.of(fingerprint)
        self.works: dict[str, Signature] = {}
        """signatures of the measured instructions, by name"""
        self.by_work: dict[Signature, list[float]] = {}
        self.by_product: dict[Signature, list[tuple[Instruction, float]]] = {}
        if source is not None:
            for instruction, us in self.all():
                self.works[instruction.name] = work_signature(source, instruction)
                self.by_work.setdefault(self.works[instruction.name], []).append(us)
                if key := product_signature(source, instruction):
                    self.by_product.setdefault(key, []).append((instruction, us))

    def estimate(self, instruction: Instruction) -> Estimate | None:
        """The measured cost of one execution; None if nothing measured matches."""
        named = self._by_name(self.program, instruction)
        if self.source is None:
            return _measured(named, "in the recording") if named is not None else None
        key = work_signature(self.program, instruction)
        if named is not None and self._is_same(instruction, key):
            return _measured(named, "in the recording")
        if same := self.by_work.get(key):
            return _measured(sum(same) / len(same), "the same work, in the recording")
        if alike := self.by_product.get(product_signature(self.program, instruction)):
            return self._from_another_kernel(instruction, alike)
        return None

    def _from_another_kernel(
        self, instruction: Instruction, alike: list[tuple[Instruction, float]]
    ) -> Estimate:
        """The matmul's time in other kernels, scaled by the ratio of the modelled times."""
        ratios = [self._ratio(instruction, other) for other, _ in alike]
        # Use the most similar kernels.
        best = min(abs(math.log(ratio)) for ratio in ratios)
        found = [
            (us * ratio, ratio)
            for (_, us), ratio in zip(alike, ratios, strict=True)
            if abs(math.log(ratio)) <= best + 1e-6
        ]
        us, ratio = (sum(column) / len(found) for column in zip(*found, strict=True))
        why = "the same matmul, in another kernel"
        return Estimate(us, "calibrated", "", f"{why} × {ratio:.2f}" if ratio != 1 else why)

    def _ratio(self, instruction: Instruction, other: Instruction) -> float:
        if self.model is None or self.source is None:
            return 1.0
        ours, theirs = self.model(self.program, instruction), self.model(self.source, other)
        if not ours.us or not theirs.us:
            return 1.0
        return min(max(ours.us / theirs.us, 1 / MOST_RATIO), MOST_RATIO)

    def all(self) -> Iterator[tuple[Instruction, float]]:
        """Every instruction that was measured, and its microseconds, where its program is known."""
        source = self.source
        for instruction in source.scheduled if source is not None else ():
            if not launches_nothing(instruction):
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

    def _is_same(self, instruction: Instruction, key: Signature) -> bool:
        source = self.source
        if source is None or source is self.program:
            return True
        if instruction.name not in source:
            return False
        known = self.works.get(instruction.name)
        return (known or work_signature(source, source.instruction(instruction.name))) == key


def _measured(us: float, why: str) -> Estimate:
    return Estimate(us, "measured", "", why)
