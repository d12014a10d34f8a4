"""Costs for all ranks: where the first can't make them, the others don't wait for nothing."""

import pytest

from slipstream.run.cost_phase import make_costs
from slipstream.run.rank import Rank
from slipstream.run.run_dir import DONE, RunDir, mark_done


@pytest.fixture
def stores(tmp_path):
    """Two ranks whose profiles are done, and hold no recording."""
    found = [RunDir(tmp_path, rank) for rank in range(2)]
    for run_dir in found:
        run_dir.profile.mkdir(parents=True)
        (run_dir.profile / "programs").mkdir()
        (run_dir.profile / "programs" / "jit_f.hlo.pb").write_bytes(b"no program")
        mark_done(run_dir.profile, [], {"program": "jit_f"})
    return found


def test_the_others_hear_why_there_are_none(stores):
    first, second = stores
    problem = make_costs(first, Rank(0, 2), "typical").problem
    assert problem is not None
    assert make_costs(second, Rank(1, 2), "typical").problem == problem


def test_on_a_full_disk_they_see_that_it_was_given_up(stores, monkeypatch):
    def fails(*arguments, **named):
        raise OSError(28, "No space left on device")

    first, second = stores
    monkeypatch.setattr("slipstream.writing._sibling", fails)
    assert make_costs(first, Rank(0, 2), "typical").problem is not None
    assert not (first.profile / DONE).exists()
    found = make_costs(second, Rank(1, 2), "typical")
    assert found.problem == "the first rank could not make costs"
