"""Which program is hot, what tells programs apart, and the way in."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from slipstream.consensus.kvstore import FolderStore
from slipstream.errors import BadInput
from slipstream.experiment.variants import Variant
from slipstream.jaxhooks.compiled_program import CompiledProgram
from slipstream.run.agent.hot_program import PATIENCE, HotProgramChooser
from slipstream.run.agent.request import Request, read_request
from slipstream.run.launcher import SITE, job_environment
from slipstream.run.rank import Rank
from slipstream.run.rollcall import all_ranks_share
from slipstream.run.settings import parse_capture, parse_rank, profiler_attributes


def program(name, size, works=True):
    text = (b"dot_general" if works else b"add") + b" " * size
    return CompiledProgram(name, text, 0.1, object(), object())


def calls_until_hot(chooser, *programs, most=1000):
    """Call programs in turn until one is hot: its name, and the round."""
    for number in range(1, most):
        for one in programs:
            if chooser.called(one):
                return one.name, number
    return None


def test_the_step_is_hot_after_its_first_calls():
    assert calls_until_hot(HotProgramChooser(4), program("jit_step", 100)) == ("jit_step", 4)


def test_a_helper_without_work_waits():
    helper = program("jit__normal", 5000, works=False)
    assert calls_until_hot(HotProgramChooser(4), helper) == ("jit__normal", 4 * PATIENCE)
    step = program("jit_step", 100)
    assert calls_until_hot(HotProgramChooser(4), helper, step) == ("jit_step", 4)


def test_a_small_program_waits_for_a_large_one_that_runs():
    chooser, step, init = HotProgramChooser(4), program("jit_step", 1000), program("jit_loss", 100)
    assert calls_until_hot(chooser, init, step) == ("jit_step", 4)
    # One that ran once and never again blocks nobody for good.
    chooser = HotProgramChooser(2)
    chooser.called(step)
    assert calls_until_hot(chooser, init) == ("jit_loss", 2 * PATIENCE)


def test_a_step_that_was_compiled_twice_is_hot_at_once():
    """The first call has weakly typed arguments, and a program of its own, a little larger."""
    chooser = HotProgramChooser(4)
    chooser.called(program("jit_step", 110))
    assert calls_until_hot(chooser, program("jit_step", 100)) == ("jit_step", 4)
    assert chooser.busiest() == ("jit_step", 5)


def test_nothing_is_hot_while_something_is_compiled():
    chooser, step = HotProgramChooser(3), program("jit_step", 100)
    for _ in range(10):
        assert not chooser.called(step)
        assert not chooser.called(step)
        chooser.compiled(program("jit_other", 50))
    assert calls_until_hot(chooser, step) == ("jit_step", 3)


def test_a_request_reads_back_as_written(tmp_path):
    variants = (Variant("costs", {}, True), Variant("fast", {"xla_a": "1"}))
    request = Request("compare", str(tmp_path), 2, 3, 8, variants=variants, devices=("H200",) * 2)
    assert read_request(request.write(tmp_path / "request.json")) == request
    (tmp_path / "request.json").write_text("{}")
    with pytest.raises(BadInput, match="no request"):
        read_request(tmp_path / "request.json")


def test_the_way_in_keeps_the_users_path(tmp_path):
    found = job_environment({"PYTHONPATH": "a::b", "X": "1"}, tmp_path / "o", {"X": "2"})
    assert found["PYTHONPATH"] == f"{SITE}:a:b"
    assert found["X"] == "2"
    assert job_environment({"X": "1"}, None) == {"X": "1"}


def test_the_way_in_comes_with_the_package():
    """It is found by its path, not imported, so nothing else would notice that it is missing."""
    package = Path(import_module("slipstream").__file__).parent
    assert (SITE / "sitecustomize.py").is_file()
    assert SITE.is_relative_to(package)


def test_a_process_without_jax_does_not_import_slipstream(tmp_path):
    environment = job_environment({}, tmp_path / "request.json")
    script = "import sys, json; print([m for m in sys.modules if m.startswith('slipstream')])"
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


@pytest.mark.parametrize(
    ("environment", "typed", "rank"),
    [
        ({}, None, Rank(0, 1)),
        ({"SLURM_PROCID": "3", "SLURM_NTASKS": "8", "SLURM_STEP_ID": "0"}, None, Rank(3, 8)),
        # A batch script is one process, however many it will start.
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, None, Rank(0, 1)),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, None, Rank(1, 2)),
        (
            {
                "OMPI_COMM_WORLD_RANK": "1",
                "OMPI_COMM_WORLD_SIZE": "2",
                "SLURM_PROCID": "0",
                "SLURM_NTASKS": "4",
                "SLURM_STEP_ID": "0",
            },
            None,
            Rank(1, 2),
        ),
        ({"SLURM_PROCID": "3", "SLURM_NTASKS": "8"}, (5, None), Rank(5, 8)),
        ({}, (2, 4), Rank(2, 4)),
        ({"SLURM_NTASKS": "8"}, (0, 2), Rank(0, 2)),
    ],
)
def test_the_rank_is_the_launchers(environment, typed, rank):
    assert Rank.here(typed, environment) == rank


def test_a_rank_that_is_typed_says_of_how_many():
    assert [parse_rank(text) for text in (None, "3", "0/2")] == [None, (3, None), (0, 2)]
    for wrong in ("2/2", "a", "1/", "-1/2", "1/2/3"):
        with pytest.raises(BadInput, match="--rank 0/2 and --rank 1/2 are two"):
            parse_rank(wrong)
    with pytest.raises(BadInput, match="write --rank 0/COUNT"):
        Rank.here((0, None), {})


def test_ranks_count_each_other(tmp_path):
    job = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}
    assert not all_ranks_share(tmp_path, Rank(0, 2), job, patience_s=0.2)
    # Who comes late goes by what was found.
    assert not all_ranks_share(tmp_path, Rank(1, 2), job)
    again = {**job, "SLURM_STEP_ID": "1"}
    FolderStore(tmp_path / "ranks" / "7-1-0").put("present/1", b"")
    assert all_ranks_share(tmp_path, Rank(0, 2), again)
    assert all_ranks_share(tmp_path, Rank(1, 2), again)
    assert all_ranks_share(tmp_path, Rank(0, 1), job)


def test_captures_and_profiler_options_are_read():
    assert parse_capture("5:3") == (5, 3)
    for wrong in ("5", "0:3", "5:0", "a:b", "-1:2"):
        with pytest.raises(BadInput, match="START:COUNT"):
            parse_capture(wrong)
    name = "SLIPSTREAM_PROFILER_OPTIONS"
    assert profiler_attributes({name: '{"host_tracer_level": 1}'}) == {"host_tracer_level": 1}
    assert profiler_attributes({}) == {}
    with pytest.raises(BadInput, match="ProfileOptions"):
        profiler_attributes({name: "[1"})
