"""How predictions compare with measurements, and when the others are corrected by it."""

import random

import pytest

from slipstream.plan.measure.calibration import agreement, calibrate, calibrated
from slipstream.results.planning import MEASURED, Candidate
from slipstream.results.tuning import CRASH, OK


def measured(number, predicted, step, parts=None, **more):
    return Candidate(
        number=number,
        choices={"batch": number},
        status=OK,
        step_us=step,
        work=64.0,
        work_per_s=64e6 / step,
        memory_bytes=100,
        basis=MEASURED,
        predicted_us=predicted,
        parts_us=parts or {"products": predicted},
        **more,
    )


def simulated(number, step, parts=None):
    return Candidate(
        number, {"batch": number}, OK, step, step * 0.9, step * 1.1, 64.0, 64e6 / step,
        parts_us=parts or {"products": step},
    )  # fmt: skip


def test_a_common_factor_corrects_the_others():
    noise = (1.01, 0.99, 1.0, 1.02)
    known = [measured(n, 100.0 * n, 100.0 * n * 1.2 * f) for n, f in enumerate(noise, 1)]
    by = calibrate(known)
    assert by.factor == pytest.approx(1.2, rel=0.01) and not by.parts
    *_, other = calibrated([*known, simulated(9, 1000.0)], by)
    assert other.step_us == pytest.approx(1206, rel=0.01) and other.predicted_us == 1000.0
    assert other.work_per_s == pytest.approx(64e6 / other.step_us)
    # As wide as the worst of those that were predicted from the others.
    assert 1 < other.high_us / other.step_us < 1.05
    found = agreement(known, by)
    assert found.factor == by.factor and "the others were multiplied by 1.206" in found.text
    assert found.mean_error == pytest.approx(0.17, abs=0.01) and found.rank_correlation is None


@pytest.mark.parametrize("ratios", [(1.1, 1.2), (1.1, 0.9, 1.05, 0.93), (1.0, 1.0, 1.0)])
def test_without_enough_evidence_predictions_stay(ratios):
    known = [measured(n, 100.0, 100.0 * ratio) for n, ratio in enumerate(ratios)]
    by = calibrate(known)
    assert by.is_none
    candidates = [*known, simulated(9, 1000.0)]
    assert calibrated(candidates, by) == tuple(candidates)
    text = agreement(known, by).text
    said = "too few to recalibrate" if len(ratios) < 3 else "the others stay as predicted"
    assert said in text


def test_parts_have_factors_of_their_own_if_that_explains_the_times():
    random.seed(1)
    known = []
    for number in range(10):
        parts = {"products": random.uniform(50, 100), "exposed NVLink": random.uniform(5, 60)}
        took = 1.05 * parts["products"] + 1.6 * parts["exposed NVLink"]
        known.append(measured(number, sum(parts.values()), took, parts))
    by = calibrate(known)
    factors = dict(by.parts)
    assert factors["products"] == pytest.approx(1.05, abs=0.1)
    assert factors["exposed NVLink"] == pytest.approx(1.6, abs=0.15)
    other = simulated(99, 100.0, {"products": 90.0, "exposed NVLink": 10.0})
    assert by.step_us(other) == pytest.approx(110.5, rel=0.03)
    assert "exposed NVLink by 1." in agreement(known, by).text


def test_order_memory_and_failures_are_compared():
    known = [
        measured(0, 100.0, 120.0, measured_memory_bytes=80),
        # The steps that are measured add up no gradients.
        measured(1, 110.0, 110.0, measured_memory_bytes=80, accumulator_bytes=20),
        measured(2, 120.0, 130.0),
        measured(3, 130.0, 140.0),
        measured(4, 140.0, 150.0),
        Candidate(5, {"batch": 5}, CRASH, basis=MEASURED),
        simulated(6, 50.0),
    ]
    found = agreement(known, calibrate(known))
    assert (found.measured, found.failed) == (5, 1)
    assert found.worst_error == pytest.approx(1 / 6)
    assert found.rank_correlation == pytest.approx(0.9)
    assert found.recommended_behind == pytest.approx(120 / 110 - 1)
    assert found.memory_mean_error == pytest.approx(0.125)
    assert found.memory_worst_error == pytest.approx(0.25)
    assert "1 candidate that should run did not" in found.text
    assert agreement([simulated(6, 50.0)], calibrate([])) is None
