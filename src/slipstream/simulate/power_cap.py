"""The clock of a whole step: what the power cap leaves to its kernels, waits included."""

from __future__ import annotations

from collections.abc import Iterable

from slipstream.machines.kernel_features import kernel_features
from slipstream.machines.kernel_model import kernel_time
from slipstream.machines.machine import Machine
from slipstream.machines.power import Power, highest_share, joules, watts
from slipstream.profile.program import Instruction, Program

SLOW = 0.6
"""the share of the clock at which kernels are timed a second time, to interpolate"""


class StepPower:
    """Energy of a program's kernels, and how long they take by clock."""

    def __init__(
        self, program: Program, machine: Machine, kernels: Iterable[tuple[Instruction, int]]
    ) -> None:
        self._gpu = machine.gpu
        fast, slow = machine.at(1.0), machine.at(SLOW)
        energy = fast_us = slow_us = 0.0
        for instruction, times in kernels:
            energy += times * joules(kernel_features(program, instruction), machine.gpu)
            fast_us += times * kernel_time(fast, program, instruction).us
            slow_us += times * kernel_time(slow, program, instruction).us
        self._joules = energy * machine.activity
        # What the clock limits takes longer in proportion to 1 / clock, the rest as long as before.
        self._limited_us = (slow_us - fast_us) / (1 / SLOW - 1)
        self._rest_us = fast_us - self._limited_us

    def kernels_us(self, share: float) -> float:
        """Microseconds of all kernels, one after another, at a share of the highest clock."""
        return self._rest_us + self._limited_us / share

    def share(self, idle_us: float) -> float:
        """The share of the highest clock that the cap leaves to a step that also waits so long."""
        return highest_share(
            self._gpu, self._joules, lambda share: (self.kernels_us(share) + idle_us) / 1e6
        )

    def power(self, share: float, step_us: float) -> Power:
        """Clock and mean power of a step that takes so long."""
        drawn = watts(self._gpu, self._joules, step_us / 1e6, share)
        return Power(self._gpu.clock_hz * share, drawn, share < 1.0)
