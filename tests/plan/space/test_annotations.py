"""Annotations of what may vary."""

import subprocess
import sys
from typing import Annotated, get_type_hints

import pytest

import slipstream
from slipstream.errors import BadInput


@pytest.mark.parametrize(
    ("ends", "values"),
    [
        ((1, 64), (1, 2, 4, 8, 16, 32, 64)),
        ((3, 48), (3, 4, 8, 16, 32, 48)),
        ((0, 4), (0, 1, 2, 4)),
        ((-3, 3), (-3, 1, 2, 3)),
        ((5, 5), (5,)),
        ((-4, -2), (-4, -2)),
    ],
)
def test_a_range_tries_powers_of_two_and_its_ends(ends, values):
    assert slipstream.Range(*ends).values == values


def test_the_short_form_is_an_annotated_int():
    assert slipstream.Range[1, 64] == Annotated[int, slipstream.Range(1, 64)]


@pytest.mark.parametrize("sizes", [0, (1, -2), (1, 2.0), "8", (1, True)])
def test_what_is_no_size_of_an_axis(sizes):
    with pytest.raises(BadInput, match=r"no sizes of a mesh axis; .*Divisor\[1, 2, 4, 8\]"):
        slipstream.Divisor[sizes]


def test_for_type_checkers_they_are_ints():
    def build(*, tensor: slipstream.Divisor[1, 2] = 1, batch: slipstream.Range[1, 8] = 1): ...

    assert get_type_hints(build) == {"tensor": int, "batch": int}


@pytest.mark.parametrize("ends", [(64, 1), (1, 2.5), ("1", 2), (True, 2), 4, (1, 2, 3)])
def test_what_is_no_range(ends):
    with pytest.raises(BadInput, match=r"is not a range; expected two .*Range\[1, 64\]"):
        slipstream.Range[ends]


def test_a_training_script_imports_little_for_them():
    script = (
        "import sys; from slipstream import Divisor, Range\n"
        "print([name for name in ('jax', 'numba', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
