"""Reasons follow from the compiled programs, not from what a setting ought to do."""

from __future__ import annotations

from slipstream.results.tuning import OK
from slipstream.tune.outcome import Outcome
from slipstream.tune.report.reasons import reasons

FLAG = "xla_gpu_all_gather_combine_threshold_bytes"
LAYERS = {
    "layers": 8,
    FLAG: {"kind": "all-gather", "layer_bytes": 100_000_000, "default": "31457280"},
}
MIB = 1 << 20


def outcome(count: int, each: int) -> Outcome:
    return Outcome(status=OK, step_us=1000.0, collectives={"all-gather": (count, count * each)})


def test_a_threshold_that_changed_the_program() -> None:
    """By its size it would split a layer into four; the program has one for each layer."""
    said = reasons({FLAG: str(32 * MIB)}, outcome(64, 12_500_000), outcome(8, 10**8), LAYERS)
    assert said == (
        "8 all-gathers per step instead of 64, 100 MB each on average instead of 12.5 MB",
        "with the all-gather threshold of 33.6 MB, the program has 8 all-gathers per step of "
        "100 MB on average (a layer's weights: 100 MB, 8 layers)",
    )


def test_a_threshold_that_changed_nothing() -> None:
    said = reasons({FLAG: str(32 * MIB)}, outcome(8, 10**8), outcome(8, 10**8), LAYERS)
    assert said == (
        "with the all-gather threshold of 33.6 MB, the program has the same all-gathers as "
        "without it (a layer's weights: 100 MB, 8 layers)",
    )


def test_a_default_is_no_reason() -> None:
    assert reasons({}, outcome(8, 10**8), outcome(8, 10**8), LAYERS) == ()
