"""What rules look at: the analyses and simulations of one profile, computed on first use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np

from slipstream.analyses.bounds import bounds
from slipstream.analyses.collectives import Collectives, collectives, known_gpu
from slipstream.analyses.gaps import Gaps, gaps
from slipstream.analyses.hosts import FleetContext, Hosts, hosts
from slipstream.analyses.labels import Label, label_of
from slipstream.analyses.memory import ProgramMemory, program_memory
from slipstream.analyses.network.flows import machine_of, predicted_machine
from slipstream.analyses.ops import Op, ops
from slipstream.analyses.overlap import Overlap, overlap
from slipstream.analyses.roofline import Roofline, roofline
from slipstream.analyses.slack import Slack, slack
from slipstream.analyses.summary import StepTimes, step_times
from slipstream.costs.table import CostTable
from slipstream.diagnosis.flag_advice import FlagAdvice
from slipstream.machines.features import KernelFeatures
from slipstream.machines.kernel_features import kernel_features
from slipstream.machines.machine import Estimate, Gpu, Machine
from slipstream.profile.attribution.executions import graph_number
from slipstream.profile.events import Array, distinct
from slipstream.profile.profile import Profile
from slipstream.profile.program import Instruction, Program
from slipstream.results.diagnosis import Remedy
from slipstream.results.what_if import NetworkWhatIf
from slipstream.simulate.costing import costing
from slipstream.simulate.engine import Simulation, simulation
from slipstream.simulate.recorded import hottest_name, own_costs
from slipstream.simulate.what_if import network_what_if

NOTICEABLE = 0.01
"""minimum share of the step for a finding: two runs of one program differ by as much"""
SIMULATION_ERROR = 0.01
"""mean error of a step simulated from a recording with other settings: docs/accuracy.md"""
TRUSTED = 0.05
"""largest error of the simulated recorded program at which simulations are used"""
USABLE_MEMORY = 0.75
"""share of a GPU's memory that JAX allocates by default
(docs.jax.dev/en/latest/gpu_memory_allocation.html)"""

MOST_EVENTS = 300_000
"""profiles with more device events are reduced to a few steps"""
FEWEST_STEPS = 3


class Evidence:
    """One profile, and what else is known about the run."""

    def __init__(
        self,
        profile: Profile,
        *,
        costs: CostTable | None = None,
        settings: Mapping[str, str] | None = None,
        machine: Machine | None = None,
        slice_gbps: float | None = None,
        fleet: FleetContext | None = None,
    ) -> None:
        self.whole = profile
        self.fleet = fleet
        self.given_machine = machine
        self.slice_gbps = slice_gbps
        self.given_costs = costs
        self.settings = settings
        """flags that the run was started with; None if unknown"""

    # The profile.

    @cached_property
    def profile(self) -> Profile:
        """The profile, or a few of its steps if it is large."""
        chosen = self._chosen
        if chosen is None:
            return self.whole
        return self.whole.with_events(self.whole.events.take(chosen))

    @cached_property
    def _chosen(self) -> Array | None:
        return middle_steps(self.whole)

    @cached_property
    def step(self) -> StepTimes:
        """The median step of the whole recording."""
        return step_times(self.whole)

    @property
    def noticeable_us(self) -> float:
        return NOTICEABLE * self.step.wall_us

    @cached_property
    def program_name(self) -> str:
        """The program with the most device time; empty if the profile has no copy of it."""
        return hottest_name(self.profile) or ""

    @cached_property
    def program(self) -> Program | None:
        return self.profile.programs[self.program_name] if self.program_name else None

    @cached_property
    def model(self) -> str:
        return next((device.model for device in self.profile.devices if device.model), "")

    @property
    def gpu(self) -> Gpu | None:
        return known_gpu(self.model)

    @property
    def is_gpu(self) -> bool:
        return any(device.kind == "gpu" for device in self.profile.devices)

    @cached_property
    def machine(self) -> Machine | None:
        """As given; otherwise the profile's GPUs, with the usual number of GPUs per host."""
        return self.stated_machine or machine_of(self.profile)

    @cached_property
    def stated_machine(self) -> Machine | None:
        """The machine named by the caller, or by the simulation that made the profile."""
        if self.given_machine is not None:
            return self.given_machine
        return predicted_machine(self.whole)

    # Analyses.

    @cached_property
    def ops(self) -> tuple[Op, ...]:
        return ops(self.profile).ops

    @cached_property
    def op_by_name(self) -> dict[str, Op]:
        """Ops of the hottest program, by instruction."""
        return {op.instruction: op for op in self.ops if op.program == self.program_name}

    @cached_property
    def overlap(self) -> Overlap:
        return overlap(self.profile)

    @cached_property
    def slack(self) -> Slack:
        return slack(self.profile)

    @cached_property
    def gaps(self) -> Gaps:
        return gaps(self.profile)

    @cached_property
    def collectives(self) -> Collectives:
        if self.fleet is None:
            return collectives(self.profile)
        met = self.fleet.met
        return collectives(self.profile, met if self._chosen is None else met.taken(self._chosen))

    @cached_property
    def roofline(self) -> Roofline:
        return roofline(self.profile)

    @cached_property
    def hosts(self) -> Hosts:
        return hosts(self.profile) if self.fleet is None else self.fleet.hosts

    @cached_property
    def memory(self) -> ProgramMemory | None:
        program = self.program
        return program_memory(program, self.program_name) if program is not None else None

    @property
    def free_bytes(self) -> int | None:
        """Memory that JAX allocates by default and the program doesn't use; None if unknown."""
        if self.gpu is None or self.memory is None:
            return None
        return max(0, round(USABLE_MEMORY * self.gpu.memory_bytes) - self.memory.peak_bytes)

    def label(self, instruction: Instruction) -> Label:
        assert self.program is not None
        return label_of(self.program_name, self.program, instruction)

    def start(self, name: str) -> Instruction | None:
        """The instruction that a profile calls `name`; for an asynchronous one, its start."""
        program = self.program
        if program is None or name not in program:
            return None
        return program.starter(name) or program.instruction(name)

    def kernel_features(self, instruction: Instruction) -> KernelFeatures:
        """The kernel features of an instruction of the program."""
        assert self.program is not None
        return kernel_features(self.program, instruction)

    @cached_property
    def in_graphs(self) -> frozenset[str]:
        """Instructions of the program whose kernels ran inside CUDA graphs."""
        events = self.profile.events
        if not len(events):
            return frozenset()
        labelled = np.array([graph_number(text) is not None for text in events.texts], bool)
        rows = np.flatnonzero(labelled[events["op"]] | (events["graph"] > 0))
        names = np.unique(events.cells("instruction", rows)).tolist()
        return frozenset(events.texts[i] for i in names if i)

    # Simulation.

    @cached_property
    def estimates(self) -> Mapping[str, Estimate]:
        """The median cost of each instruction in the recording."""
        program, machine = self.program, self.machine
        if program is None or machine is None:
            return {}
        return costing(program, machine, own_costs(self.profile, self.program_name))

    @cached_property
    def simulation_doubt(self) -> str:
        """Why simulations of the program can't be trusted; empty if they can."""
        if not self.is_gpu:
            return "no GPU was recorded"
        if self.program is None:
            return "the profile has no copy of the program"
        if self.machine is None:
            return f"{self.model or 'the GPU'} and its links are unknown"
        span = self.span_us
        if not span or not self.program.is_scheduled:
            return "the program's schedule was not recorded"
        off = self.simulated().profile_us / span - 1
        if abs(off) > TRUSTED:
            return (
                f"the simulated step differs from the recorded one by {off:+.0%}, too much to "
                "predict changes"
            )
        return ""

    @cached_property
    def span_us(self) -> float:
        """Median duration of one execution of the program, from its first kernel to its last."""
        runs = self.profile.runs
        own = [i for i, t in enumerate(self.profile.events.texts) if t == self.program_name and t]
        rows = np.isin(runs.program, own)
        if not rows.any():
            return 0.0
        usual = runs.events[rows] >= np.median(runs.events[rows])
        spans = (runs.end_ps - runs.start_ps)[rows][usual]
        return float(np.median(spans)) / 1e6

    def simulated(
        self, *, graphs: bool | None = None, costs: Mapping[str, float] | None = None
    ) -> Simulated:
        """The program simulated as it ran, with other costs, or with CUDA graphs on or off."""
        key = (graphs, tuple(sorted((costs or {}).items())))
        if key not in self._simulations:
            self._simulations[key] = self._simulate(graphs, costs or {})
        return self._simulations[key]

    @cached_property
    def _simulations(self) -> dict[object, Simulated]:
        return {}

    def _simulate(self, graphs: bool | None, costs: Mapping[str, float]) -> Simulated:
        assert self.program is not None and self.machine is not None
        estimates = {
            name: replace(estimate, us=costs[name]) if name in costs else estimate
            for name, estimate in self.estimates.items()
        }
        on = bool(self.in_graphs) if graphs is None else graphs
        made = simulation(self.program, self.machine, estimates=estimates, command_buffers=on)
        return Simulated(made)

    @cached_property
    def other_networks(self) -> NetworkWhatIf | None:
        """Which network would hide what crosses it, for a predicted step.

        None if it is not the step that the models predict, as with measured costs.
        """
        machine, program = predicted_machine(self.whole), self.program
        if machine is None or program is None or not program.is_scheduled:
            return None
        again = simulation(program, machine)
        off = step_times(again.profile).wall_us / max(self.step.wall_us, 1e-9) - 1
        if abs(off) > SIMULATION_ERROR:
            return None
        return network_what_if(program, machine, again, ((None, None),))

    @cached_property
    def least_us(self) -> float:
        """A lower bound for any schedule of the program."""
        assert self.program is not None and self.machine is not None
        return bounds(self.program, self.estimates, self.machine).least_us

    # Flags.

    @cached_property
    def flags(self) -> FlagAdvice:
        recorded = dict(self.program.flags) if self.program is not None else {}
        is_known = bool(recorded) or self.settings is not None
        return FlagAdvice(self.whole, {**recorded, **(self.settings or {})}, is_known)

    def flag(self, name: str, value: str, note: str = "") -> Remedy | None:
        """The change that sets a flag; None if the run's jaxlib doesn't accept it."""
        return self.flags.change(name, value, note)


class Simulated:
    """A simulated step, and how long it takes."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation

    @cached_property
    def profile_us(self) -> float:
        events = self.simulation.profile.events
        if not len(events):
            return 0.0
        end = int((events["start_ps"] + events["duration_ps"]).max())
        return (end - int(events["start_ps"].min())) / 1e6


def few_steps(profile: Profile, most: int = MOST_EVENTS) -> Profile:
    """The profile reduced to its middle steps with about `most` events, at least three steps."""
    chosen = middle_steps(profile, most)
    return profile if chosen is None else profile.with_events(profile.events.take(chosen))


def middle_steps(profile: Profile, most: int = MOST_EVENTS) -> Array | None:
    """Which events are in the middle steps, as a mask; None if the profile is small enough."""
    steps = profile.steps
    if len(profile.events) <= most or steps.basis == "recording":
        return None
    numbers = distinct(steps.number)
    wanted = max(FEWEST_STEPS, most * len(numbers) // len(profile.events))
    if wanted >= len(numbers):
        return None
    first = (len(numbers) - wanted) // 2
    kept = np.isin(steps.number, numbers[first : first + wanted])
    # The last entry is for events outside all steps.
    chosen: Array = np.append(kept, False)[steps.of_events(profile)]
    return chosen
