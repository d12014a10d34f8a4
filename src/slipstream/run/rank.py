"""Which rank of the job this process is, and whether all ranks share the run's folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from slipstream.consensus.consensus import job_id
from slipstream.consensus.kvstore import FolderStore, poll
from slipstream.errors import BadInput

# MPI's before Slurm's: in a batch script, Slurm tells every rank of an mpirun that it is rank 0.
_RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")
_COUNTS = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
LAUNCHERS = ("srun", "mpirun", "mpiexec")
"""commands that start the processes of a job"""
_STEP = "SLURM_STEP_ID"
"""set by srun only; a batch script also has SLURM_PROCID and SLURM_NTASKS, but is one process"""
LONGEST_WAIT_S = 120.0
"""between the first rank that starts and the last"""
ALL, SOME = b"all", b"some"


@dataclass(frozen=True)
class Rank:
    """One process among those that were started with the same command."""

    index: int = 0
    count: int = 1

    @property
    def is_first(self) -> bool:
        return self.index == 0

    @staticmethod
    def here(typed: tuple[int, int | None] | None, environment: Mapping[str, str]) -> Rank:
        """As typed, else as Slurm's, Open MPI's or PMI's variables say, else a single process."""
        index, count = typed or (_launched_rank(environment), None)
        count = count or _number(_COUNTS, environment)
        if index is None:
            return Rank()
        if typed and count is None:
            # The first rank merges the recordings of all, so it has to know how many there are.
            raise BadInput(
                f"--rank {index} doesn't say how many processes there are, and no variable of "
                f"Slurm or MPI does; write --rank {index}/COUNT"
            )
        return Rank(index, max(count or 1, index + 1))


def is_launched(environment: Mapping[str, str]) -> bool:
    """Whether a launcher started this process as one of its ranks, even if it is the only one."""
    return _launched_rank(environment) is not None


def all_ranks_share(
    folder: Path, rank: Rank, environment: Mapping[str, str], patience_s: float = LONGEST_WAIT_S
) -> bool:
    """Whether every rank is seen in the folder in time.

    The first answer counts for all ranks that share the folder. If the job has no id, its ranks
    can't be told from those of an earlier job; the folder is then taken to be shared, as on one
    machine.
    """
    job = job_id(environment)
    if rank.count == 1 or job is None:
        return True
    store = FolderStore(folder / "ranks" / job)
    store.put(f"present/{rank.index}", b"")

    def answer() -> bytes | None:
        if len(store.with_prefix("present")) == rank.count:
            store.put("answer", ALL)
        return store.get("answer")

    if poll(answer, patience_s, every_s=0.1) is None:
        store.put("answer", SOME)
    return store.get("answer", wait_s=1.0) == ALL


def _launched_rank(environment: Mapping[str, str]) -> int | None:
    names = _RANKS if _STEP in environment else _RANKS[:-1]
    return _number(names, environment)


def _number(names: tuple[str, ...], environment: Mapping[str, str]) -> int | None:
    for name in names:
        if environment.get(name, "").isdigit():
            return int(environment[name])
    return None
