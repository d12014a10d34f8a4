"""Verdicts on planted step times: what is there is found, what is not is not."""

import numpy as np
import pytest

from slipstream.experiment.plan import LOOKS
from slipstream.experiment.stats import MIN_ROUNDS, compare, round_order


def noisy(seed, count, centre, spread=0.002):
    return list(centre * np.exp(np.random.default_rng(seed).normal(0, spread, count)))


@pytest.mark.parametrize(
    ("after", "verdict"),
    [(0.95, "faster"), (1.05, "slower"), (1.0, "no different"), (1.0005, "no different")],
)
def test_a_planted_change_is_found(after, verdict):
    found = compare(noisy(1, 30, 1.0), noisy(2, 30, after))
    assert found.verdict == verdict
    assert found.low <= found.change <= found.high
    assert found.low < after - 1 < found.high or verdict == "no different"
    assert (found.rounds, round(found.before_us / 1e6, 2)) == (30, 1.0)


def test_an_exact_change_is_exact():
    found = compare([2.0] * 10, [1.0] * 10)
    assert (found.change, found.low, found.high) == pytest.approx((-0.5, -0.5, -0.5))
    assert found.verdict == "faster"


def test_noise_that_hides_everything_is_said():
    found = compare(noisy(1, 30, 1.0, 0.3), noisy(2, 30, 0.98, 0.3))
    assert found.verdict == "can't tell" and "vary too much" in found.why


@pytest.mark.parametrize("count", [0, 1, MIN_ROUNDS - 1])
def test_few_rounds_say_nothing(count):
    found = compare([1.0] * count, [0.5] * count)
    assert found.verdict == "can't tell"
    assert found.why == f"only {count} rounds were timed; a verdict needs at least {MIN_ROUNDS}"


def test_drift_is_shared_and_odd_steps_move_nothing():
    drift = np.linspace(1.0, 2.0, 30)
    before, after = drift.copy(), drift * 0.97
    before[3] *= 10
    after[17] *= 25
    found = compare(list(before), list(after))
    assert found.verdict == "faster" and found.change == pytest.approx(-0.03, abs=1e-3)


def test_more_comparisons_widen_the_interval():
    one = compare(noisy(1, 30, 1.0), noisy(2, 30, 0.99))
    many = compare(noisy(1, 30, 1.0), noisy(2, 30, 0.99), comparisons=9)
    assert many.low < one.low < one.high < many.high
    assert many.confidence == pytest.approx(1 - 0.05 / 9)


@pytest.mark.parametrize("arms", [1, 3])
def test_equal_programs_are_rarely_told_apart(arms):
    """A loop looks several times at several arms; all together may err in one case of twenty."""
    wrong = 0
    for seed in range(300):
        random = np.random.default_rng(seed)
        times = np.exp(random.normal(0, 0.02, (arms + 1, LOOKS[-1])))
        wrong += any(
            compare(list(times[0, :n]), list(times[arm, :n]), arms * len(LOOKS)).verdict
            in ("faster", "slower")
            for n in LOOKS
            for arm in range(1, arms + 1)
        )
    assert wrong / 300 < 0.05


def test_every_two_rounds_mirror_each_other_in_random_order():
    """A fixed order could meet something regular: each second collection of garbage, say."""
    orders = [round_order("ab", number) for number in range(60)]
    assert all(one == other[::-1] for one, other in zip(orders[::2], orders[1::2], strict=True))
    firsts = "".join(one[0] for one in orders[::2])
    assert 8 <= firsts.count("a") <= 22
    # No period: neither all alike nor one after the other.
    assert {"aa", "ab", "ba", "bb"} <= {firsts[n : n + 2] for n in range(29)}
    assert orders == [round_order("ab", number) for number in range(60)]
