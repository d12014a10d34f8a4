"""What all parts share: measured steps, predicted steps, tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from slipstream.analyses.summary import step_times
from slipstream.machines.machine import Machine
from slipstream.profile.profile import Profile
from slipstream.profile.program import Program
from slipstream.simulate.engine import Simulation, simulation
from slipstream.simulate.prediction import band
from slipstream.simulate.recorded import RecordedCosts, costs_of, hottest_program
from slipstream.sources.load import load


@dataclass(frozen=True)
class Recording:
    """A recorded step: its program, how long it took on the device, and what it waited for."""

    name: str
    profile: Profile
    program: Program
    step_ms: float
    exposed_ms: float
    """communication and copies in which nothing computes"""
    costs: RecordedCosts
    has_graphs: bool


@cache
def recording(path: Path, policy: str = "typical") -> Recording:
    profile = load(path)
    program = hottest_program(profile)
    assert program is not None, f"{path} holds no program"
    times = step_times(profile)
    exposed = (times.exposed_communication_us + times.exposed_copy_us) / 1e3
    name = path.name.removesuffix(".gz").removesuffix(".xplane.pb")
    return Recording(
        name, profile, program, device_ms(profile, program), exposed, costs_of(profile, policy),
        bool((profile.events["graph"][:] != 0).any()),
    )  # fmt: skip


def device_ms(profile: Profile, program: Program) -> float:
    """From the first kernel of a step to the end of its last, the median over steps."""
    runs = profile.runs
    names = [profile.events.texts[i] for i in runs.program.tolist()]
    own = np.array([name == f"{program.name}({program.program_id})" for name in names])
    return float(np.median((runs.end_ps - runs.start_ps)[own])) / 1e9


def predicted(
    target: Recording, machine: Machine, costs: RecordedCosts | None = None
) -> tuple[Simulation, float, float]:
    """(simulation, step, exposed) of a recording's program, in milliseconds."""
    table, source = (costs.costs, costs.source) if costs is not None else (None, None)
    step = simulation(
        target.program, machine, table, source=source, command_buffers=target.has_graphs
    )
    times = step_times(step.profile)
    exposed = times.exposed_communication_us + times.exposed_copy_us
    return step, times.wall_us / 1e3, exposed / 1e3


def band_ms(target: Recording, machine: Machine, step: Simulation) -> tuple[float, float]:
    """The 90% band of a predicted step, in milliseconds."""
    low, high = band(target.program, machine, step)
    ours = step_times(step.profile).wall_us / 1e3
    return low * ours, high * ours


def is_inside(target: Recording, machine: Machine, step: Simulation) -> bool:
    low, high = band_ms(target, machine, step)
    return low <= target.step_ms <= high


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def error(predicted_ms: float, measured_ms: float) -> float:
    return predicted_ms / measured_ms - 1


def signed(share: float) -> str:
    return f"{share:+.1%}"


def goal(text: str, value: str, is_met: bool) -> str:
    return f"- {text}: **{value}**{'' if is_met else ' (goal missed)'}"


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Spearman's: how far one order is the other."""
    ranks = [np.argsort(np.argsort(values)) for values in (first, second)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1]) if len(first) > 1 else float("nan")
