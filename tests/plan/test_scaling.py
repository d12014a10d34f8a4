"""The best candidates of several machines, side by side."""

from dataclasses import replace

import pytest

from slipstream.plan.scaling import scaling, scaling_reasons
from slipstream.results.planning import Candidate, MachinePlan, PlanCounts, ScalingPoint
from slipstream.results.tuning import OK


def machine_plan(
    spec: str,
    rate: float,
    exposed: float,
    work: float = 1e5,
    price: float | None = None,
    **choices: int,
) -> MachinePlan:
    step = work / rate * 1e6
    parts = {"products": (1 - exposed) * step, "exposed network": exposed * step}
    best = Candidate(3, choices, OK, step_us=step, work=work, work_per_s=rate, parts_us=parts)
    *counts, _ = spec.split("x")
    devices = 1
    for count in counts:
        devices *= int(count)
    return MachinePlan(spec, devices, (best,), best, (), (), PlanCounts(1), price_per_hour=price)


SMALL = machine_plan("8xH100", 80_000, 0.05, price=20, tensor=1, fsdp=8)
MIDDLE = machine_plan("8x8xH100", 600_000, 0.2, price=160, tensor=1, fsdp=64)
LARGE = machine_plan("64x8xH100", 2_560_000, 0.6, price=1280, tensor=4, fsdp=128)


def test_points_are_ordered_by_size() -> None:
    small, middle, large = scaling([LARGE, SMALL, MIDDLE])
    assert small == ScalingPoint(
        machine="8xH100",
        devices=8,
        choices={"tensor": 1, "fsdp": 8},
        step_us=1.25e6,
        work_per_s=80_000,
        work_per_s_per_device=10_000,
        efficiency=1.0,
        exposed_share=pytest.approx(0.05),
        cost_per_work=pytest.approx(20 / 3600 / 80_000),
        same_work=True,
    )
    assert (middle.machine, middle.efficiency) == ("8x8xH100", 0.9375)
    assert (large.machine, large.efficiency, large.same_work) == ("64x8xH100", 0.5, True)


def test_sentences() -> None:
    assert scaling_reasons([SMALL, MIDDLE, LARGE], "tokens") == (
        "from 8 to 512 devices, with the same work in a step: 32.0 times the tokens/s, "
        "50% efficiency",
        "communication takes over at 64x8xH100: 60% of the step is exposed communication, "
        "40% products and attention",
        "best tensor: 1 on 8xH100, 4 from 64x8xH100 on",
        "tokens cost least on 8xH100",
    )


def test_communication_that_never_takes_over() -> None:
    said = scaling_reasons([SMALL, MIDDLE], "tokens")
    assert said[1] == (
        "communication takes over nowhere: at most 20% of the step is exposed communication, "
        "at 8x8xH100"
    )


def test_more_work_on_more_devices_is_weak_scaling() -> None:
    more = machine_plan("8x8xH100", 600_000, 0.2, work=8e5, tensor=1)
    _, point = scaling([SMALL, more])
    assert not point.same_work
    assert "with more work in a step" in scaling_reasons([SMALL, more], "tokens")[0]


def test_other_gpus_are_compared_with_their_own_kind() -> None:
    other = machine_plan("8xH200", 120_000, 0.05)
    larger = machine_plan("8x8xH200", 480_000, 0.05)
    found = {point.machine: point.efficiency for point in scaling([SMALL, MIDDLE, other, larger])}
    assert found == {"8xH100": 1.0, "8xH200": 1.0, "8x8xH100": 0.9375, "8x8xH200": 0.5}


def test_machines_on_which_nothing_runs_are_left_out() -> None:
    assert scaling([SMALL, replace(MIDDLE, best=None)]) == ()
    assert scaling_reasons([SMALL, replace(MIDDLE, best=None)], "tokens") == ()
