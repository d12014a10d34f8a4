"""Which rank a process is, and whether all ranks share a folder."""

from pathlib import Path

import pytest

from slipstream.consensus.kvstore import FolderStore
from slipstream.errors import BadInput
from slipstream.run.rank import (
    SOURCES,
    Rank,
    all_ranks_share,
    is_launched,
    more_processes_note,
    rank_notes,
)
from slipstream.run.settings import parse_rank

ROOT = Path(__file__).parents[2]


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
        with pytest.raises(BadInput, match="two processes are --rank 0/2 and --rank 1/2"):
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


def test_without_a_job_id_the_folder_is_taken_to_be_shared_and_nobody_waits(tmp_path):
    """torchrun without an id, Kubernetes: an earlier job's ranks would look like this one's."""
    for environment in ({"TORCHELASTIC_RUN_ID": "none"}, {"JOB_COMPLETION_INDEX": "1"}):
        assert all_ranks_share(tmp_path, Rank(1, 64), environment)
    assert list(tmp_path.iterdir()) == []


def test_what_only_jax_knows_is_said():
    assert more_processes_note(Rank(0, 16), 16) is None
    assert more_processes_note(Rank(0, 16), 1) is None
    note = more_processes_note(Rank(), 16)
    assert note.startswith("jax.distributed has 16 processes, but slipstream run knew of 1: ")
    assert "--rank N/COUNT" in note


SRUN = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_STEP_ID": "0"}
BATCH = {"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "7"}


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_every_source_gives_the_rank(source):
    environment = {source.index: "1", source.counts[0]: "4", **dict.fromkeys(source.needs, "1")}
    if source.name == "Slurm":
        environment |= {"SLURM_STEP_ID": "0"}
    assert Rank.here(None, environment) == Rank(1, 4)
    assert rank_notes(environment) == ()
    assert is_launched(environment) == source.is_launcher
    # What isn't a number is ignored.
    assert Rank.here(None, environment | {source.index: "one"}) == Rank(0, 1)


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_every_source_is_in_the_docs_in_order(source):
    text = (ROOT / "docs" / "run.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| ") and "`" in line]
    row = f"| {source.name} | `{source.index}` |"
    assert [line for line in rows if line.startswith(row)], row
    starts = [text.index(f"| {one.name} | `{one.index}` |") for one in SOURCES]
    assert starts == sorted(starts)


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        # torchrun, or a script with JAX's variables, on each of two nodes
        (SRUN | {"RANK": "11", "WORLD_SIZE": "16", "LOCAL_RANK": "3"}, Rank(11, 16)),
        (SRUN | {"JAX_PROCESS_ID": "11", "JAX_NUM_PROCESSES": "16"}, Rank(11, 16)),
        # exported once for all ranks
        (SRUN | {"RANK": "0", "WORLD_SIZE": "2"}, Rank(1, 2)),
        # a batch script and an interactive shell are one process
        (BATCH | {"RANK": "0", "WORLD_SIZE": "8"}, Rank(0, 1)),
        (BATCH | {"SLURM_STEP_ID": "4294967291"}, Rank(0, 1)),
        (BATCH | {"SLURM_STEP_ID": "4294967290"}, Rank(0, 1)),
        (BATCH | {"PMIX_RANK": "3", "PMIX_NAMESPACE": "a"}, Rank(3, 8)),
        # half of what is needed
        ({"RANK": "1"}, Rank(0, 1)),
        ({"WORLD_SIZE": "2"}, Rank(0, 1)),
        ({"JAX_PROCESS_ID": "1"}, Rank(0, 1)),
        ({"NODE_RANK": "1", "NNODES": "2"}, Rank(0, 1)),
        ({"JOB_COMPLETION_INDEX": "3"}, Rank(0, 1)),
        # a JobSet of two jobs
        (
            {
                "JOB_INDEX": "1",
                "PROCESSES_IN_JOB": "4",
                "JOB_COMPLETION_INDEX": "2",
                "JAX_PROCESS_COUNT": "8",
            },
            Rank(6, 8),
        ),
    ],
)
def test_what_is_closest_to_the_process_counts(environment, rank):
    assert Rank.here(None, environment) == rank


@pytest.mark.parametrize(
    ("environment", "note"),
    [
        ({}, None),
        (SRUN, None),
        (SRUN | {"RANK": "1", "WORLD_SIZE": "2"}, None),
        (
            SRUN | {"RANK": "0", "WORLD_SIZE": "2"},
            "this is rank 1 of 2, from Slurm (SLURM_PROCID), but RANK (RANK) says 0 of 2; ",
        ),
        (
            SRUN | {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"},
            "this is rank 1 of 4, from Open MPI (OMPI_COMM_WORLD_RANK), but Slurm (SLURM_PROCID) "
            "says 1 of 2; ",
        ),
        (BATCH | {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, None),
        # Open MPI's ranks have PMIx's variable as well, which comes without a count.
        (
            {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "PMIX_RANK": "0"}
            | {"SLURM_NTASKS": "8"},
            None,
        ),
        ({"PMIX_RANK": "0", "RANK": "0", "WORLD_SIZE": "1"}, None),
        ({"RANK": "1"}, "RANK is 1, but WORLD_SIZE is not set: this counts as the only process; "),
        (
            {"JOB_COMPLETION_INDEX": "3"},
            "JOB_COMPLETION_INDEX is 3, but JAX_NUM_PROCESSES or JAX_PROCESS_COUNT or ",
        ),
        (
            {"JAX_COORDINATOR_ADDRESS": "a:1"},
            "JAX_COORDINATOR_ADDRESS is set, but no variable says which process this is",
        ),
    ],
)
def test_what_is_doubtful_about_a_rank_is_reported(environment, note):
    notes = rank_notes(environment)
    assert len(notes) == (note is not None)
    for text in notes:
        assert text.startswith(note)
        assert text.endswith("its --rank N/COUNT")
