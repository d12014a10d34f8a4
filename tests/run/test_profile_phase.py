"""The profile phase: whether what was recorded can be used."""

from types import SimpleNamespace

from slipstream.run.profile_phase import ProfilePhase
from slipstream.run.rank import Rank
from slipstream.run.run_dir import RunDir, mark_done


def test_the_profile_of_one_of_several_ranks_is_not_used(tmp_path, monkeypatch):
    """Only JAX knew that there are 16: each rank would compile with costs of its own."""
    run_dir, said = RunDir(tmp_path), []
    context = SimpleNamespace(
        rank=Rank(), run_dir=run_dir, all_ranks=lambda holds: holds(run_dir), warn=said.append
    )
    monkeypatch.setattr(ProfilePhase, "_record", lambda self: None)
    monkeypatch.setattr(ProfilePhase, "_with_costs", lambda self, facts: facts)
    phase = ProfilePhase(context, SimpleNamespace())
    monkeypatch.setattr(phase, "reused", lambda: None)
    run_dir.profile.mkdir(parents=True)
    mark_done(run_dir.profile, [], {"processes": 1})
    assert phase.run() == {"processes": 1} and said == []
    mark_done(run_dir.profile, [], {"processes": 16})
    assert phase.run() is None
    assert said[0].startswith("jax.distributed has 16 processes, but slipstream run knew of 1")
