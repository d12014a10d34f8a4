import math

import pytest

from slipstream.outputs.terminal.bars import bar


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (0, "    "),
        (1, "████"),
        (0.5, "██  "),
        (0.53, "██▏ "),
        (1e-9, "▏   "),
        (0.97, "███▉"),
        (1.7, "████"),
        (-1, "    "),
        (math.nan, "    "),
    ],
)
def test_bar(share, expected):
    assert bar(share, 4) == expected
