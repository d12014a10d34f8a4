"""Durations in bounded memory: exact while they are few, rounded when they are many."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from slipstream.costs.durations import MOST, Durations

VALUES = st.lists(st.integers(0, 10**9).map(lambda ps: ps / 1e6), min_size=1, max_size=40)


@given(st.lists(VALUES, min_size=1, max_size=5))
def test_few_durations_are_exact(parts):
    found = Durations()
    for part in parts:
        found.add(Durations(np.array(part)))
    plain = np.sort(np.concatenate([np.array(part) for part in parts]))
    assert len(found) == len(plain)
    assert [found.at(place) for place in range(len(plain))] == plain.tolist()
    assert (found.least, found.most) == (plain[0], plain[-1])
    assert (
        found.median
        == plain[(len(plain) - 1) // 2]
        + (plain[len(plain) // 2] - plain[(len(plain) - 1) // 2]) / 2
    )


def test_many_durations_are_rounded_to_a_twentieth_of_a_percent():
    rng = np.random.default_rng(0)
    hosts = rng.normal(300.0, 10.0, (50, 5_000))
    found = Durations()
    for values in hosts:
        found.add(Durations(values))
    kept = sum(len(values) for values in found._values)
    assert len(found) == hosts.size and kept <= 2 * MOST
    assert abs(found.median / np.median(hosts) - 1) < 5e-4
    for share in (0.1, 0.9):
        plain = np.sort(hosts.ravel())[int(share * (hosts.size - 1))]
        assert abs(found.at(int(share * (hosts.size - 1))) / plain - 1) < 5e-4
