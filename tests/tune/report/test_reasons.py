"""Reasons follow from the compiled programs, not from what a setting ought to do."""

from __future__ import annotations

from dataclasses import replace

from slipstream.results.tuning import OK
from slipstream.tune.outcome import Outcome
from slipstream.tune.report.reasons import program_changes, reasons
from slipstream.tune.search.program_counts import CollectiveCounts, ProgramCounts

FLAG = "xla_gpu_all_gather_combine_threshold_bytes"
LAYERS = {
    "layers": 8,
    FLAG: {"kind": "all-gather", "layer_bytes": 100_000_000, "default": "31457280"},
}
MIB = 1 << 20


def outcome(count: int, each: int, program: str = "a", **counts: int) -> Outcome:
    found = CollectiveCounts(count, count * each, each, **{"arrays": 64, **counts})
    made = ProgramCounts({"all-gather": found}, 4, 2, (8,))
    return Outcome(status=OK, step_us=1000.0, program=program, work=program, counts=made)


DEFAULT = outcome(64, 12_500_000)


def test_a_threshold_that_changed_the_program() -> None:
    """By its size it would split a layer into four; the program has one for each layer."""
    best = replace(outcome(8, 10**8, "b", asynchronous=6), least_us=900.0)
    assert reasons({FLAG: str(32 * MIB)}, DEFAULT, best, LAYERS) == (
        "all-gathers per step 64 → 8 of 64 arrays, the largest 12.5 MB → 100 MB, "
        "asynchronous 0 → 6",
        "with the all-gather threshold of 33.6 MB, the program has 8 all-gathers per step, 1 for "
        "each layer, 100 MB on average (a layer's weights: 100 MB, 8 layers)",
        "no schedule of its program takes less than 900 µs",
    )


def test_a_threshold_that_changed_nothing() -> None:
    same = outcome(8, 10**8)
    assert reasons({FLAG: str(32 * MIB)}, same, same, LAYERS) == (
        "the all-gather threshold of 33.6 MB leaves the program's all-gathers as they are "
        "(a layer's weights: 100 MB, 8 layers)",
    )


def test_parts_of_the_step_that_changed_noticeably() -> None:
    parts = {"compute": 900.0, "exposed copies": 100.0, "idle": 0.5}
    before = replace(DEFAULT, parts_us=parts)
    after = replace(DEFAULT, parts_us={"compute": 890.0, "exposed copies": 40.0, "idle": 0.0})
    assert reasons({}, before, after, {}) == (
        "exposed copies 100 µs → 40 µs",
        "compute 900 µs → 890 µs",
    )


def test_a_clock_that_changed_noticeably() -> None:
    before, after = replace(DEFAULT, clock_hz=1.864e9), replace(DEFAULT, clock_hz=1.831e9)
    assert reasons({}, before, after, {}) == ("clock 1,864 → 1,831 MHz, as the power cap allows",)
    assert reasons({}, before, replace(DEFAULT, clock_hz=1.863e9), {}) == ()
    assert reasons({}, before, DEFAULT, {}) == ()
    assert Outcome.from_json(before.to_json()) == before


def test_the_compilers_own_cycles() -> None:
    def counted(cycles: int) -> Outcome:
        counts = replace(DEFAULT.counts, compiler_cycles=cycles) if DEFAULT.counts else None
        return replace(DEFAULT, counts=counts)

    before = counted(12_500_000_000)
    said = reasons({}, before, counted(12_000_000_000), {})
    assert said == ("XLA's own cycles 1.25e+10 → 1.2e+10, -4.0%",)
    assert reasons({}, before, before, {}) == reasons({}, before, counted(0), {}) == ()
    assert Outcome.from_json(before.to_json()) == before


def test_a_default_is_no_reason() -> None:
    assert reasons({}, DEFAULT, DEFAULT, LAYERS) == ()


def test_changes_of_everything_that_is_counted() -> None:
    alone = replace(DEFAULT, at_once=1)
    other = ProgramCounts({"all-reduce": CollectiveCounts(2, 8, 4, 2, 2, 1)}, 0, 6, (4, 0))
    changed = replace(alone, program="b", work="b", counts=other, at_once=4)
    assert program_changes(alone, changed) == (
        "no all-gathers instead of 64 per step",
        "all-reduces per step 0 → 2, the largest 0 B → 4 B, asynchronous 0 → 2, in loops 0 → 1, "
        "together 0 B → 8 B",
        "matmuls by Triton per step 4 → 0",
        "matmuls by libraries per step 2 → 6",
        "iterations of its loops 8 → 4 + ?",
        "collectives in flight at once, at most 1 → 4",
    )


def test_changes_that_no_count_shows() -> None:
    def said(program: str, work: str) -> tuple[str, ...]:
        return program_changes(DEFAULT, replace(DEFAULT, program=program, work=work))

    assert said("a", "a") == ()
    assert said("b", "a") == ("the instructions of the default's program, in another order",)
    assert said("a flag=1", "a") == ("the default's program, launched in another way",)
    assert said("b", "b") == ("as many collectives, matmuls and loops as the default's program",)


def test_outcomes_of_earlier_studies_have_no_counts() -> None:
    """They give no reasons about their programs, rather than wrong ones."""
    old = Outcome.from_json({"status": OK, "collectives": {"all-gather": [64, 800]}})
    assert old.counts is None
    assert program_changes(old, DEFAULT) == () == reasons({FLAG: "1"}, old, old, LAYERS)
    assert Outcome.from_json(DEFAULT.to_json()) == DEFAULT
