"""Which rank a process is, and whether all ranks share a folder."""

import pytest

from slipstream.consensus.kvstore import FolderStore
from slipstream.errors import BadInput
from slipstream.run.rank import Rank, all_ranks_share
from slipstream.run.settings import parse_rank


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
