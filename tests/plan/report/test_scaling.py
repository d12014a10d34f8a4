"""The best candidates of several machines, side by side."""

from dataclasses import replace

import pytest

from slipstream.plan.report.scaling import scaling, scaling_reasons, strong_scaling
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
        "communication takes over at 64x8xH100: 60% of the step is exposed communication",
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
    less = machine_plan("8x8xH100", 600_000, 0.2, work=5e4, tensor=1)
    assert "with less work in a step" in scaling_reasons([SMALL, less], "tokens")[0]


def test_other_gpus_are_compared_with_their_own_kind() -> None:
    other = machine_plan("8xH200", 120_000, 0.05)
    larger = machine_plan("8x8xH200", 480_000, 0.05)
    found = {point.machine: point.efficiency for point in scaling([SMALL, MIDDLE, other, larger])}
    assert found == {"8xH100": 1.0, "8xH200": 1.0, "8x8xH100": 0.9375, "8x8xH200": 0.5}


def test_slices_of_tpus_are_one_kind_and_layouts_are_compared_within_a_kind() -> None:
    small = replace(machine_plan("8xH100", 8_000, 0.05, axis=1), machine="v5e-8")
    large = replace(machine_plan("64xH100", 32_000, 0.2, axis=2), machine="2xv5e-32")
    most = replace(machine_plan("512xH100", 128_000, 0.3, axis=2), machine="2xv5e-256")
    points = scaling([small, large, most, MIDDLE])
    found = {point.machine: point.efficiency for point in points}
    assert found == {"v5e-8": 1.0, "2xv5e-32": 0.5, "8x8xH100": 1.0, "2xv5e-256": 0.25}
    said = scaling_reasons([small, large, most, MIDDLE], "tokens")
    assert "best axis: 1 on v5e-8, 2 from 2xv5e-32 on" in said
    assert not any("8x8xH100" in one for one in said if one.startswith("best"))


def test_machines_on_which_nothing_runs_are_left_out() -> None:
    assert scaling([SMALL, replace(MIDDLE, best=None)]) == ()
    assert scaling_reasons([SMALL, replace(MIDDLE, best=None)], "tokens") == ()


def test_strong_scaling_takes_the_most_work_that_most_machines_can_do() -> None:
    """The best candidates do other work; those that do the same are compared besides."""

    def with_others(spec: str, **rates: float) -> MachinePlan:
        plans = [
            machine_plan(spec, rate, 0.1, work=float(work[1:])) for work, rate in rates.items()
        ]
        candidates = [replace(one.candidates[0], number=at) for at, one in enumerate(plans)]
        best = max(candidates, key=lambda one: one.work_per_s or 0.0)
        return replace(plans[0], candidates=tuple(candidates), best=best)

    small = with_others("8xH100", w1000=70_000, w2000=75_000, w4000=80_000)
    large = with_others("8x8xH100", w2000=300_000, w1000=100_000, w32000=600_000)
    assert [point.same_work for point in scaling([small, large])] == [True, False]
    first, last = strong_scaling([small, large])
    assert (first.work_per_s, last.work_per_s) == (75_000, 300_000)
    assert (first.same_work, last.same_work, last.efficiency) == (True, True, 0.5)
    assert (
        "with the same work in a step, communication takes over nowhere: at most 10% of the step "
        "is exposed communication, at 8xH100"
    ) in scaling_reasons([small, large], "tokens")
    # A machine on which nothing does that work is left out.
    other = with_others("64x8xH100", w64000=900_000)
    assert strong_scaling([small, large, other]) == (first, last)
    assert strong_scaling([small, other]) == ()
    assert strong_scaling([]) == ()
