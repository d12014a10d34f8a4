"""Costs for all ranks: each extracts its own, the first merges; nobody waits in vain."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from slipstream.costs.files import read_costs
from slipstream.costs.table import Cost, CostTable, ProgramCosts
from slipstream.experiment.shared_costs import message_of
from slipstream.jaxhooks.profiler import ProfilerFailed
from slipstream.run import cost_phase
from slipstream.run.cost_phase import OWN, make_costs
from slipstream.run.rank import Rank
from slipstream.run.run_dir import DONE, RunDir, mark_done, write_json


@pytest.fixture
def recorded(tmp_path):
    """The folders of so many ranks, whose profiles are done and hold no recording."""

    def ranks(count):
        found = [RunDir(tmp_path, rank) for rank in range(count)]
        for run_dir in found:
            run_dir.profile.mkdir(parents=True)
            mark_done(run_dir.profile, [], {"program": "jit_f", "rank": run_dir.rank})
        return found

    return ranks


@pytest.fixture
def extracts(monkeypatch):
    """Every rank extracts a cost of its own; some have a problem."""
    problems, extracting = {}, []

    def extracted(run_dir, policy):
        extracting.append(run_dir.rank)
        if run_dir.rank in problems:
            raise ProfilerFailed(problems[run_dir.rank])
        costs = {"dot": Cost("dot", 10.0 + run_dir.rank, 3)}
        table = CostTable((ProgramCosts(None, f"jit_f({run_dir.rank})", costs),), policy)
        share = 1.0 - run_dir.rank / 100
        return {"table": message_of(table), "coverage": {"share": share}}

    monkeypatch.setattr(cost_phase, "_extracted", extracted)
    return problems, extracting


def make_all(run_dirs):
    """All ranks at once, as in a job."""
    count = len(run_dirs)
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(lambda r: make_costs(r, Rank(r.rank, count), "typical"), run_dirs))


def test_every_rank_extracts_its_own_costs_and_the_first_merges_them(recorded, extracts):
    run_dirs = recorded(16)
    found = make_all(run_dirs)
    assert sorted(extracts[1]) == list(range(16))
    assert [costs.problem for costs in found] == [None] * 16
    assert {costs.digest for costs in found} == {found[0].digest}
    assert found[5].facts["ranks"] == 16 and found[5].facts["coverage"] == {"share": 0.85}
    (program,) = read_costs(found[0].file).programs
    assert program.costs["dot"].us == 17.5 and program.costs["dot"].executions == 48


def test_costs_of_an_earlier_recording_do_not_count(recorded, extracts, monkeypatch):
    monkeypatch.setattr(cost_phase, "LONGEST_WAIT_S", 0.1)
    first, second = recorded(2)
    write_json(second.profile / OWN, {"policy": "typical", "profile": "another", "table": {}})
    found = make_costs(first, Rank(0, 2), "typical")
    assert found.problem == "rank 1 extracted no costs within 0 s"


def test_the_others_hear_why_there_are_none(recorded, extracts):
    extracts[0][0] = "planted"
    found = make_all(recorded(3))
    assert [costs.problem for costs in found] == ["planted"] * 3


def test_all_hear_which_rank_has_none(recorded, extracts):
    extracts[0][1] = "planted"
    found = make_all(recorded(3))
    assert [costs.problem for costs in found] == ["rank 1: planted", "planted", "rank 1: planted"]


def test_on_a_full_disk_they_see_that_it_was_given_up(recorded, extracts, monkeypatch):
    def fails(*arguments, **named):
        raise OSError(28, "No space left on device")

    run_dirs = recorded(2)
    monkeypatch.setattr("slipstream.writing._sibling", fails)
    found = make_all(run_dirs)
    assert found[0].problem == "rank 1 could not make costs"
    assert found[1].problem == "the first rank could not make costs"
    assert not any((run_dir.profile / DONE).exists() for run_dir in run_dirs)
