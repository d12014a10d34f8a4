"""The clock of a whole step: what the power cap leaves to its kernels, waits included."""

from __future__ import annotations

from collections.abc import Mapping

from slipstream.machines.kernel_features import kernel_features
from slipstream.machines.kernel_model import KernelTimes
from slipstream.machines.machine import Machine
from slipstream.machines.power import Power, highest_share, joules, peak, watts
from slipstream.profile.program import Program
from slipstream.simulate.costing import working
from slipstream.simulate.streams import is_copy

SLOW = 0.6
"""the share of the clock at which kernels are timed a second time, to interpolate"""


def without_waits(program: Program, machine: Machine) -> float:
    """The share of the highest clock if a program's kernels run one after another."""
    return StepPower(program, machine, executions_of(program)).share()


def recorded_share(program: Program, machine: Machine, us_by_name: Mapping[str, float]) -> float:
    """The share of the highest clock at which kernels that took so long drew no more than the cap.

    `us_by_name` holds each instruction's time, as in a cost table.
    """
    executions = {}
    busy_us = 0.0
    for name, times in executions_of(program).items():
        instruction = program.instruction(name)
        us = us_by_name.get(instruction.scheduling_name or name, us_by_name.get(name))
        if us is not None and program.collective_of(instruction) is None:
            executions[name] = times
            busy_us += us * times
    energy = StepPower(program, machine, executions).joules
    return highest_share(machine.gpu, energy, lambda share: busy_us / 1e6)


def executions_of(program: Program) -> dict[str, int]:
    """How often each instruction that does work runs in a step; once if that is unknown."""
    return {i.name: program.executions(i.name) or 1 for i in working(program)}


class StepPower:
    """Energy of a step's kernels, and how long they take by clock."""

    def __init__(self, program: Program, machine: Machine, executions: Mapping[str, int]) -> None:
        self._gpu = machine.gpu
        fast, slow = KernelTimes(machine.at(1.0)), KernelTimes(machine.at(SLOW))
        energy = fast_us = slow_us = copies_us = of_copies = 0.0
        for name, times in executions.items():
            instruction = program.instruction(name)
            if program.collective_of(instruction) is None:
                spent = times * joules(kernel_features(program, instruction), machine.gpu)
                took_us = times * fast(program, instruction).us
                energy += spent
                fast_us += took_us
                slow_us += times * slow(program, instruction).us
                if is_copy(program, instruction):
                    of_copies += spent
                    copies_us += took_us
        self.joules = energy * machine.activity
        self._busy_joules = (energy - of_copies) * machine.activity
        # What the clock limits takes longer in proportion to 1 / clock, the rest as long as before.
        self._limited_us = (slow_us - fast_us) / (1 / SLOW - 1)
        self.kernels_us = fast_us
        """all kernels, one after another, at the highest clock"""
        self._busy_us = fast_us - copies_us
        """without copies, beside which nothing may run"""

    def share(self, step_us: float | None = None, at: float = 1.0) -> float:
        """The share of the highest clock that the cap leaves to the step.

        `step_us` is the step's time at the share `at`: waits leave power to the kernels. If it is
        not known, kernels run one after another.
        """
        known_us = self.kernels_us if step_us is None else step_us
        limited = min(self._limited_us / at / known_us, 1.0) if known_us else 0.0

        def seconds(share: float) -> float:
            return known_us * (1 - limited + limited * at / share) / 1e6

        mean = highest_share(self._gpu, self.joules, seconds)
        return mean if step_us is None else min(mean, self._between_waits())

    def _between_waits(self) -> float:
        """The share of the highest clock that kernels never exceed, however long the waits are."""
        limited = min(self._limited_us / self._busy_us, 1.0) if self._busy_us else 0.0

        def seconds(share: float) -> float:
            return self._busy_us * (1 - limited + limited / share) / 1e6

        return highest_share(self._gpu, self._busy_joules, seconds, peak())

    def power(self, share: float, step_us: float) -> Power:
        """Clock and mean power of a step that takes so long."""
        gpu = self._gpu
        drawn = watts(gpu, self.joules, step_us / 1e6, share)
        return Power(gpu.clock_hz * share, gpu.clock_hz, drawn, gpu.power_w, share < 1.0)
