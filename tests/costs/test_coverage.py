"""The doctor, on real recordings and programs."""

from dataclasses import replace

import numpy as np
import pytest

from slipstream.costs.coverage import check_profile, check_program
from slipstream.costs.extract import extract_costs
from slipstream.costs.table import Cost, CostTable
from slipstream.sources.hlo.reader import read_program
from slipstream.sources.load import load


@pytest.fixture(scope="module")
def profile(request):
    return load(request.path.parent.parent / "data" / "off_default.xplane.pb.gz")


@pytest.fixture(scope="module")
def table(profile):
    return extract_costs(profile)


def without(table, *names):
    program = table.programs[0]
    kept = {n: c for n, c in program.costs.items() if n not in names}
    return CostTable((replace(program, costs=kept),), table.policy, table.facts)


def test_own_costs_cover_everything(table, profile):
    coverage = check_profile(table, profile)

    assert (coverage.share, coverage.basis, coverage.missing) == (1.0, "device time", ())
    assert coverage.stale == ()


def test_costs_fit_the_program_itself(table, data):
    coverage = check_program(table, read_program(data / "off_default.hlo.gz"))

    assert (coverage.share, coverage.basis, coverage.missing) == (1.0, "instructions", ())


def test_a_missing_cost_is_weighed_by_its_time(table, profile):
    coverage = check_profile(without(table, "fusion.79"), profile)

    (missing,) = coverage.missing
    assert missing.name == "fusion.79"
    assert coverage.share == pytest.approx(1 - 39.09 / 459.1, abs=1e-3)
    assert "T-shirt sizes" in coverage.fallback and "host memory" in coverage.fallback


def test_a_renamed_cost_is_pointed_at(table, profile):
    renamed = without(table, "fusion.79")
    costs = {**renamed.programs[0].costs, "fusion.97": Cost("fusion.97", 4900.0)}
    moved = CostTable((replace(renamed.programs[0], costs=costs),))

    coverage = check_profile(moved, profile)

    assert coverage.missing[0].closest == ("fusion.97",)
    assert "fusion.97" in coverage.unused


def test_staleness_depends_on_content(table, profile, data):
    program = replace(table.programs[0], fingerprint="f" * 32)
    facts = {**table.facts, "jaxlib_version": "0.9.0", "device": "NVIDIA A100"}

    coverage = check_profile(CostTable((program,), "typical", facts), profile)

    assert coverage.stale == (
        "fingerprint: costs of ffffffff, program 7733d8da",
        "jaxlib: costs of 0.9.0, program of 0.11.2",
        "device: costs of NVIDIA A100, program of NVIDIA H200",
    )


def test_costs_of_another_program_cover_little(table, data):
    other = load(data / "nccl2_lhs_r0.xplane.pb.gz")

    coverage = check_profile(table, other)

    assert coverage.share < 0.05
    assert "speed of light" in coverage.fallback


def test_bound_costs_of_another_fingerprint_are_not_taken(table, profile):
    program = replace(table.programs[0], fingerprint="f" * 32, is_bound=True)

    assert check_profile(CostTable((program,)), profile).share == 0.0


def test_the_coverage_is_that_of_the_program_asked_for(tmp_path):
    """Another program of the recording may run longer."""
    import jax
    import jax.numpy as jnp

    small, large = jax.jit(lambda x: jnp.sin(x) @ x), jax.jit(lambda x: jnp.cos(x) @ x @ x @ x)
    x = jnp.ones((64, 64))
    jax.block_until_ready((small(x), large(x)))
    with jax.profiler.trace(str(tmp_path)):
        jax.block_until_ready([small(x), *(large(x) for _ in range(20))])
    profile = load(tmp_path)
    table = extract_costs(profile)
    assert len(table.programs) == 2
    for part, other in (table.programs, table.programs[::-1]):
        one = CostTable((part,), table.policy, table.facts)
        assert check_profile(one, profile, part.program).share == 1.0
        assert check_profile(one, profile, other.program).share < 1.0


def test_time_that_belongs_to_no_instruction_has_no_cost(table, profile):
    events = profile.events
    unknown = events["instruction"].copy()
    lost = events["name"] == events["name"][np.argmax(events["duration_ps"])]
    unknown[lost] = 0
    damaged = replace(profile, events=events.replace(instruction=unknown))

    coverage = check_profile(table, damaged)

    share = events["duration_ps"][lost].sum() / events["duration_ps"].sum()
    assert coverage.share == pytest.approx(1 - share, abs=0.05)
    assert coverage.share < 0.99
