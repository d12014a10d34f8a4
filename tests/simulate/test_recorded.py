"""Costs out of recordings, and what they predict for other recordings."""

from functools import cache
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest

from slipstream.analyses.summary import step_times
from slipstream.costs.files import write_costs
from slipstream.machines.topology import machine
from slipstream.profile.profile import Profile
from slipstream.profile.program import Program
from slipstream.simulate.costing import costing
from slipstream.simulate.engine import simulation
from slipstream.simulate.recorded import (
    RecordedCosts,
    costs_of,
    hottest_program,
    is_cost_file,
    recorded_costs,
)
from slipstream.sources.load import load

OFFLOADED = {"off_default": True, "off_nolhs": True, "off_lhs_nocb": False, "off_pgle_nocb": False}
"""recordings of one program compiled four ways, and whether it ran in CUDA graphs"""


@cache
def recording(data: Path, name: str) -> tuple[Profile, Program, RecordedCosts]:
    profile = load(data / f"{name}.xplane.pb.gz")
    program = hottest_program(profile)
    assert program is not None
    return profile, program, costs_of(profile)


def measured_ms(profile: Profile, program: Program) -> float:
    runs = profile.runs
    name = f"{program.name}({program.program_id})"
    own = np.array([profile.events.texts[i] == name for i in runs.program.tolist()])
    return float(np.median((runs.end_ps - runs.start_ps)[own])) / 1e9


def test_every_variant_s_costs_predict_every_other_s_step(data: Path) -> None:
    steps: dict[tuple[str, str], float] = {}
    truth: dict[str, float] = {}
    for source, target in product(OFFLOADED, OFFLOADED):
        profile, program, _ = recording(data, target)
        costs = recording(data, source)[2]
        step = simulation(
            program,
            machine("H200"),
            estimates=costing(program, machine("H200"), costs.costs, costs.source),
            command_buffers=OFFLOADED[target],
        )
        ours, theirs = step_times(step.profile), step_times(profile)
        steps[source, target] = ours.wall_us / 1e3
        truth[target] = measured_ms(profile, program)
        assert abs(ours.exposed_copy_us - theirs.exposed_copy_us) < 3000
    errors = [abs(step / truth[target] - 1) for (_, target), step in steps.items()]
    assert np.mean(errors) < 0.02
    assert max(errors) < 0.035
    for one, other in combinations(OFFLOADED, 2):
        if abs(truth[one] / truth[other] - 1) > 0.02:
            for source in OFFLOADED:
                is_slower = steps[source, one] > steps[source, other]
                assert is_slower == (truth[one] > truth[other])


@pytest.mark.parametrize(("source", "target"), [("default", "cublas"), ("cublas", "default")])
def test_costs_go_from_triton_s_kernels_to_cublas_s_and_back(
    data: Path, source: str, target: str
) -> None:
    """Two fifths of the step are in kernels that the other program doesn't have."""
    own, _, costs = recording(data, f"accuracy/gpt_scan.{source}")
    profile, program, _ = recording(data, f"accuracy/gpt_scan.{target}")
    where = machine("H200")
    estimates = costing(program, where, costs.costs, costs.source)
    step = simulation(program, where, estimates=estimates, command_buffers=True)
    predicted = step_times(step.profile).wall_us / 1e3
    assert predicted == pytest.approx(measured_ms(profile, program), rel=0.035)
    assert costs.source is not None
    is_faster = predicted < measured_ms(own, costs.source)
    assert is_faster == (target == "cublas")


def test_a_cost_file_and_a_recording_are_told_apart(data: Path, tmp_path: Path) -> None:
    _, _, costs = recording(data, "off_default")
    write_costs(costs.for_scheduler, tmp_path / "costs.pb")
    assert is_cost_file(str(tmp_path / "costs.pb"))
    assert is_cost_file(str(tmp_path))
    assert not is_cost_file(str(data / "off_default.xplane.pb.gz"))
    read = recorded_costs(str(tmp_path / "costs.pb"), pytest.fail)
    assert read.source is None
    assert len(read.costs) == len(costs.for_scheduler)


def test_costs_go_by_the_names_of_instructions(data: Path) -> None:
    """XLA looks a start's cost up by its own name; a profile names what is inside."""
    _, program, costs = recording(data, "off_lhs_nocb")
    assert costs.source is program
    names = costs.costs.of(None)
    assert "dynamic-slice-start.1" in names
    assert "wrapped_dynamic-slice" not in names
    assert all(name in program for name in names)
