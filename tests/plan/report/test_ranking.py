"""Which candidate is best, how sure that is, and why."""

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from slipstream.machines.jitter import PAIR_QUANTILE
from slipstream.plan.report.ranking import (
    best_of,
    is_tie,
    margin,
    order,
    pair_error,
    pareto_front,
    ranked,
    score,
)
from slipstream.results.planning import (
    BOUND,
    INVALID,
    MEASURED,
    PER_SECOND,
    TIME,
    Candidate,
    Limit,
    MachinePlan,
    PlanCounts,
)
from slipstream.results.tuning import NO_FIT, OK, REFUSED, SAME

ACCURACY = Path(__file__).parents[2] / "data" / "accuracy"
GB = 10**9


def candidate(
    number: int,
    step_ms: float,
    exposed_ms: float = 0.0,
    memory_gb: float = 40,
    work: float = 1000,
    status: str = OK,
    **choices: int | str,
) -> Candidate:
    step = step_ms * 1e3
    parts = {"products": step - exposed_ms * 1e3, "exposed network": exposed_ms * 1e3}
    return Candidate(
        number,
        choices,
        status,
        step_us=step,
        low_us=step * 0.95,
        high_us=step * 1.05,
        work=work,
        work_per_s=work / step * 1e6,
        memory_bytes=round(memory_gb * GB),
        parts_us={name: us for name, us in parts.items() if us},
        limits=(Limit("products", parts["products"] / step, parts["products"], "matrix products"),),
    )


def plan(*candidates: Candidate) -> MachinePlan:
    counts = PlanCounts(len(candidates))
    return MachinePlan(
        "8x8xH100",
        64,
        candidates,
        None,
        (),
        (),
        counts,
        memory_capacity_bytes=80 * GB,
        memory_limit_bytes=76 * GB,
    )


BEST = candidate(0, 100, 10, 60, tensor=1, fsdp=64, remat="full")
TENSOR = candidate(1, 118, 40, 40, tensor=2, fsdp=32, remat="full")
DOTS = candidate(2, 101, 10, 50, tensor=1, fsdp=64, remat="dots")
SLOWER = candidate(3, 110, 2, 62, tensor=1, fsdp=16, remat="full")
LARGE = candidate(4, 84, 10, 94, status=NO_FIT, tensor=1, fsdp=64, remat="none")
ALL = (TENSOR, DOTS, BEST, SLOWER, LARGE)


def test_the_best_its_ties_and_the_front() -> None:
    found = ranked(plan(*ALL), PER_SECOND, "tokens")
    assert found.best == BEST
    assert found.ties == (0, 2)
    assert found.pareto == (1, 2, 0)


def test_reasons() -> None:
    found = ranked(plan(*ALL), PER_SECOND, "tokens")
    assert found.reasons == (
        "its step: 90% products",
        "remat=dots takes 1.0% longer (a tie): products +1%",
        "fsdp=16 takes 10.0% longer: products +18%, exposed network −8%",
        "tensor=2, fsdp=32 takes 18.0% longer: exposed network +30%, products −12%",
        "tensor=2, fsdp=32 would win if 45% of its exposed communication were hidden, and the best "
        "stayed as it is",
        "remat=none would give +19% tokens/s, but needs 94 GB of 76 GB",
        "1 other candidate is too close to tell apart from the best without measuring",
    )


def test_what_another_would_have_to_hide() -> None:
    (said,) = (one for one in ranked(plan(BEST, TENSOR), PER_SECOND).reasons if "hidden" in one)
    hidden = float(said.split("would win if ")[1].split("%")[0]) / 100
    assert 118 - hidden * 40 == pytest.approx(100)
    # Nothing that SLOWER could hide would make it as fast.
    assert not any("hidden" in one for one in ranked(plan(BEST, SLOWER), PER_SECOND).reasons)


def test_choices_that_change_nothing_are_said_once_and_name_no_rival() -> None:
    found = [
        candidate(0, 100, 10, tensor=1, flag="no"),
        candidate(1, 100, 10, status=SAME, tensor=1, flag="yes"),
        candidate(2, 120, 30, tensor=2, flag="yes"),
        candidate(3, 120, 30, status=SAME, tensor=2, flag="no"),
    ]
    same = (found[0], replace(found[1], same_program_as=0), found[2])
    made = (*same, replace(found[3], same_program_as=2))
    said = ranked(plan(*made), PER_SECOND).reasons
    assert "flag changes nothing: where only it differs, XLA compiled the same program" in said
    assert any(one.startswith("tensor=2 takes 20.0% longer") for one in said)

    # With other work in the step, it does change something; so it may if nothing was compared.
    more = (same[0], replace(same[1], work=2000), *made[2:])
    alone = (found[0], found[2])
    for these in (more, alone):
        said = ranked(plan(*these), PER_SECOND).reasons
        assert not any("changes nothing" in one for one in said)


def test_candidates_with_other_work_are_compared_by_unit_of_work() -> None:
    twice = candidate(7, 180, 10, 70, work=2000, batch=2)
    once = candidate(6, 100, 10, 60, batch=1)
    found = ranked(plan(once, twice), PER_SECOND, "tokens")
    assert found.best == twice
    assert (
        "batch=1 takes 11.1% longer per token: products +6%, exposed network +6%" in found.reasons
    )
    assert ranked(plan(once, twice), TIME, "tokens").best == once


def test_time_counts_accumulated_steps() -> None:
    accumulated = replace(BEST, accumulate=4)
    assert score(accumulated, TIME) == pytest.approx(1e6 / 400e3)
    assert score(accumulated, PER_SECOND) == BEST.work_per_s
    assert best_of([accumulated, TENSOR], TIME) == TENSOR


def test_only_what_can_be_run_is_ranked_and_each_program_once() -> None:
    same = replace(BEST, number=9, status=SAME, same_program_as=0)
    invalid = Candidate(10, {"tensor": 3}, INVALID)
    assert order([same, invalid, LARGE, TENSOR, BEST], PER_SECOND) == [BEST, TENSOR]
    assert best_of([invalid, LARGE], PER_SECOND) is None


def test_nothing_fits() -> None:
    refused = Candidate(5, {"tensor": 3}, REFUSED, why="no such mesh")
    found = ranked(plan(LARGE, refused), PER_SECOND, "tokens")
    assert (found.best, found.ties, found.pareto) == (None, (), ())
    assert found.reasons == (
        "nothing fits: the least that a candidate needs is 94 GB of 76 GB, "
        "with tensor=1, fsdp=64, remat=none",
        "the others failed: 1 refused",
    )


def test_a_bound_is_an_upper_limit_of_the_gain() -> None:
    bound = replace(LARGE, basis=BOUND)
    said = ranked(plan(BEST, bound), PER_SECOND, "tokens").reasons
    assert "remat=none would give at most +19% tokens/s, but needs 94 GB of 76 GB" in said


def test_measured_candidates_come_before_simulated_ones() -> None:
    measured = replace(TENSOR, basis=MEASURED, low_us=117e3, high_us=119e3)
    close = replace(measured, number=8, step_us=119e3, work_per_s=1000 / 0.119, low_us=118e3)
    clear = replace(measured, number=9, step_us=125e3, work_per_s=1000 / 0.125, low_us=124e3)
    assert best_of([BEST, measured], PER_SECOND) == measured
    assert is_tie(measured, close, PER_SECOND)
    assert not is_tie(measured, replace(clear, high_us=126e3), PER_SECOND)
    # One that was not measured, and should be faster, is worth measuring.
    assert ranked(plan(BEST, measured), PER_SECOND).ties == (1, 0)


def test_steps_with_other_parts_are_less_sure_to_be_in_order() -> None:
    same = candidate(5, 104, 10.4)
    assert margin(BEST, same) == pytest.approx(PAIR_QUANTILE * pair_error(BEST, BEST))
    assert margin(BEST, TENSOR) > margin(BEST, SLOWER) > margin(BEST, same)
    assert margin(BEST, replace(same, parts_us={})) > margin(BEST, TENSOR)


def test_a_front_is_one_candidate_for_each_memory() -> None:
    twin = replace(DOTS, number=11)
    assert pareto_front([BEST, DOTS, twin, TENSOR, SLOWER], PER_SECOND) == (1, 2, 0)
    assert pareto_front([replace(BEST, memory_bytes=None)], PER_SECOND) == ()


@pytest.fixture(scope="module")
def variant_pairs() -> list[tuple[Candidate, Candidate, float]]:
    """Pairs of variants whose errors the error of a pair was set by."""
    return pairs_of("variants_today.json", "variants.json", "later_variants.json")


def pairs_of(predicted: str, *measurements: str) -> list[tuple[Candidate, Candidate, float]]:
    """Pairs of variants of one model as simulated, and the logarithm of their measured ratio.

    `python tests/record/variants.py --predict FILE` writes the simulated ones.
    """
    simulated = json.loads((ACCURACY / predicted).read_text(encoding="utf-8"))
    measured: dict[str, float] = {}
    for name in measurements:
        recorded = json.loads((ACCURACY / name).read_text(encoding="utf-8"))["variants"]
        measured |= {variant: found["step_ms"] for variant, found in recorded.items()}
    steps = {
        name: Candidate(
            0, {"variant": name}, OK, step_us=found["step_ms"] * 1e3, parts_us=found["parts_us"]
        )
        for name, found in simulated["variants"].items()
    }
    return [
        (steps[one], steps[other], math.log(measured[one] / measured[other]))
        for one, other in itertools.combinations(steps, 2)
        if one.split()[0] == other.split()[0]
    ]


def test_the_error_of_a_pair_is_that_of_measured_variants(
    variant_pairs: list[tuple[Candidate, Candidate, float]],
) -> None:
    relative = [
        (math.log((one.step_us or 0) / (other.step_us or 1)) - measured) / pair_error(one, other)
        for one, other, measured in variant_pairs
    ]
    assert len(relative) == 79
    # Of a normal distribution, 10% would be outside.
    assert sum(abs(error) > PAIR_QUANTILE for error in relative) <= 0.1 * len(relative)
    assert math.sqrt(sum(error**2 for error in relative) / len(relative)) == pytest.approx(
        1, abs=0.1
    )


def test_the_error_of_a_pair_holds_for_variants_that_were_measured_later() -> None:
    pairs = pairs_of("last_variants_predicted.json", "last_variants.json")
    relative = [
        (math.log((one.step_us or 0) / (other.step_us or 1)) - measured) / pair_error(one, other)
        for one, other, measured in pairs
    ]
    assert len(relative) == 31
    assert sum(abs(error) > PAIR_QUANTILE for error in relative) <= 0.1 * len(relative)
    wrong = [
        (one.choices, other.choices)
        for one, other, measured in pairs
        if abs(math.log((one.step_us or 0) / (other.step_us or 1))) > math.log1p(margin(one, other))
        and ((one.step_us or 0) < (other.step_us or 0)) != (measured < 0)
    ]
    assert not wrong


@pytest.mark.parametrize("models", [("gpt", "moe", "llama", "encoder"), ("llama", "encoder")])
def test_what_is_not_a_tie_is_in_the_right_order(
    variant_pairs: list[tuple[Candidate, Candidate, float]], models: tuple[str, ...]
) -> None:
    """Also for the two models alone that took no part in the fit of the kernels' models."""
    clear, wrong, tied = 0, 0, 0
    for one, other, measured in variant_pairs:
        if not str(one.choices["variant"]).startswith(models):
            continue
        predicted = math.log((one.step_us or 0) / (other.step_us or 1))
        best, rival = (one, other) if predicted < 0 else (other, one)
        is_clear = not is_tie(best, rival, PER_SECOND)
        clear += is_clear
        wrong += is_clear and predicted * measured < 0
        tied += not is_clear
    assert wrong <= 0.05 * clear
    assert tied < clear / 3, "a rule that calls most pairs ties says nothing"
