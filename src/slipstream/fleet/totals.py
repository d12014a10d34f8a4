"""Totals of a run: ops, programs and costs of all hosts, added up as their digests come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from slipstream.analyses.ops import Op
from slipstream.analyses.summary import ProgramSummary
from slipstream.costs.host_costs import FleetCosts
from slipstream.fleet.digest import Digest, HostSums

ProgramKey = tuple[str, str]
"""name and content of a program: hosts may run different ones under one name"""


@dataclass
class _Sum:
    """Times add up as whole picoseconds: the order in which hosts come must not matter."""

    count: int = 0
    time_ps: int = 0

    def add(self, count: int, us: float) -> None:
        self.count += count
        self.time_ps += round(us * 1e6)


@dataclass
class Totals:
    """Sums over hosts; their size is that of the programs, not of the run."""

    averaged_over: int = 0
    costs: FleetCosts = field(default_factory=FleetCosts)
    _total: _Sum = field(default_factory=_Sum)
    _ops: dict[tuple[ProgramKey, str, str], tuple[Op, _Sum]] = field(default_factory=dict)
    _programs: dict[ProgramKey, tuple[ProgramSummary, _Sum]] = field(default_factory=dict)

    def add(self, place: int, digest: Digest, sums: HostSums, shift_ps: int) -> None:
        """Add the host at a place in the run; costs need to know how far its clock is ahead."""
        keys = {name: (name, content) for name, content in digest.hashes.items()}
        self.averaged_over += sums.averaged_over
        self._total.add(0, sums.ops.total_us)
        for op in sums.ops.ops:
            program = keys.get(op.program, (op.program, ""))
            # Ops without an instruction are told apart by their kernels.
            key = (program, op.instruction, op.description)
            self._ops.setdefault(key, (op, _Sum()))[1].add(op.count, op.total_us)
        for one in sums.programs:
            before, total = self._programs.get(keys[one.name], (one, _Sum()))
            graphs = before.command_buffers or one.command_buffers
            total.add(one.executions, one.device_us)
            self._programs[keys[one.name]] = (replace(before, command_buffers=graphs), total)
        if sums.costs is not None:
            self.costs.add(place, sums.costs, keys, shift_ps)

    def ops(self, names: Mapping[ProgramKey, str]) -> list[Op]:
        """All ops, the longest first, with programs under their names in this run."""
        over, whole_us = max(1, self.averaged_over), self._total.time_ps / 1e6
        found = []
        for (program, _, _), (op, total) in self._ops.items():
            us = total.time_ps / 1e6
            found.append(
                replace(
                    op,
                    program=names.get(program, program[0]),
                    count=total.count,
                    total_us=us,
                    per_step_us=us / over,
                    per_step_count=total.count / over,
                    share=us / whole_us if whole_us else 0.0,
                )
            )
        return sorted(found, key=lambda op: (-op.total_us, op.program, op.instruction))

    def programs(self, names: Mapping[ProgramKey, str]) -> list[ProgramSummary]:
        """All programs, the longest first."""
        found = [
            replace(one, name=names[key], executions=total.count, device_us=total.time_ps / 1e6)
            for key, (one, total) in self._programs.items()
        ]
        return sorted(found, key=lambda one: (-one.device_us, one.name))
