"""Weights are distinguished from optimizer state by their names."""

import pytest

from slipstream.profile.semantics.dataflow import is_weight


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("params['layers']['v']", True),
        ("params['v']['kernel']", True),
        ("state.params['attention']['v']['kernel']", True),
        ("v['w1']", False),
        ("state['v']['w1']", False),
        ("state[1]['m']['w']", False),
        ("adam.m['w']", False),
        ("opt_state[0].mu['w']", False),
        ("tokens", False),
    ],
)
def test_is_weight(name: str, expected: bool) -> None:
    assert is_weight(name) is expected
