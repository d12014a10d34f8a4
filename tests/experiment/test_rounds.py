"""Which arm wins, and results that stop being numbers."""

import jax
import jax.numpy as jnp
import pytest

from slipstream.experiment.rounds import NanCheck, are_finite, simplest_as_fast
from slipstream.experiment.variants import BOTH, COSTS, NO_GRAPHS, Arm

NAN = jnp.float32(jnp.nan)


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ([jnp.ones(3), jnp.float32(1), jnp.array(2, jnp.bfloat16), jax.random.key(0)], True),
        ([jnp.ones(3), NAN], False),
        ((jnp.full((1, 1), jnp.inf, jnp.bfloat16),), False),
        # Only single floats: a mask of many may hold what it likes.
        ([jnp.full(3, jnp.nan), jnp.int32(3)], True),
        (0, True),
    ],
)
def test_single_floats_are_looked_at(result, expected):
    assert are_finite(result) is expected


def test_the_first_odd_result_is_told_once():
    numbers = NanCheck()
    assert numbers.note(5, "original", [jnp.float32(1)]) is None
    told = numbers.note(6, "costs", [NAN])
    assert told is not None and "until call 6, which the program 'costs' ran" in told
    assert numbers.note(7, "original", [NAN]) is None


def test_what_was_none_before_us_is_not_told():
    numbers = NanCheck()
    assert numbers.note(5, "original", [NAN]) is None
    assert numbers.note(6, "costs", [NAN]) is None


def arm(variant, step_s):
    noise = [1.001, 0.999, 1.0, 1.0005, 0.9995] * 6
    return Arm(variant, times_s=[step_s * one for one in noise])


def test_of_arms_as_fast_the_simplest_wins():
    both, costs, plain = arm(BOTH, 0.900), arm(COSTS, 0.9005), arm(NO_GRAPHS, 0.95)
    assert simplest_as_fast(both, [plain, costs, both]) is costs
    # One that is slower, if only a little, is not as fast, however simple it is.
    assert simplest_as_fast(both, [plain, both]) is both
    assert simplest_as_fast(costs, [costs, arm(NO_GRAPHS, 0.9002)]) is costs
