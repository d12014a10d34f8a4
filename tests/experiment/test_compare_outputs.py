"""Results of a step, kept small and compared."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from slipstream.experiment import compare_outputs as results
from slipstream.experiment.compare_outputs import (
    difference,
    largest_difference,
    read_results,
    small_results,
    write_results,
)


@pytest.mark.parametrize(
    ("expected", "found", "off"),
    [
        ([1.0, -4.0], [1.0, -4.0], 0.0),
        ([1.0, -4.0], [1.0, -3.0], 0.25),
        ([0.0], [0.5], 0.5),
        ([], [], 0.0),
        ([1.0, math.nan], [1.0, math.nan], 0.0),
        ([1.0, math.inf], [2.0, math.inf], 1.0),
        ([math.inf], [-math.inf], math.inf),
        ([1.0], [math.nan], math.inf),
        ([math.nan], [1.0], math.inf),
        ([1.0], [1.0, 2.0], math.inf),
        ([1 + 2j], [1 + 1j], 0.5),
    ],
)
def test_how_far_results_are_off(expected, found, off):
    assert difference(np.array(expected), np.array(found)) == off


def test_small_results_are_kept_and_large_ones_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "MAX_BYTES", 64)
    given = [jnp.ones(100), jnp.float32(2.5), jnp.ones(4, jnp.bfloat16), jnp.arange(3)]
    kept = small_results(given)
    assert kept is not None and sorted(kept) == ["1", "2", "3"]
    write_results(tmp_path, kept)
    read = read_results(tmp_path)
    assert read is not None and largest_difference(kept, read) == 0.0
    assert read["2"].dtype == np.float32 and float(read["1"]) == 2.5
    assert largest_difference(kept, {**read, "1": np.float32(5)}) == 1.0
    assert largest_difference(kept, {"1": read["1"]}) == math.inf
    assert read_results(tmp_path / "nowhere") is None
