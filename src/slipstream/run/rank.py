"""Which of the job's processes this is, as launchers tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slipstream.errors import BadInput

# MPI's before Slurm's: to every rank of an mpirun in a batch script Slurm says 0.
_RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")
_COUNTS = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
LAUNCHERS = ("srun", "mpirun", "mpiexec")
"""commands that start the processes of a job"""
_STEP = "SLURM_STEP_ID"
"""set by srun; a batch script has a SLURM_PROCID and SLURM_NTASKS, too, and is one process"""


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
        """By what was typed, else by Slurm's, Open MPI's or PMI's variables, else alone."""
        rank, count = typed or (_launched_rank(environment), None)
        count = count or _number(_COUNTS, environment)
        if rank is None:
            return Rank()
        if typed and count is None:
            # The first rank merges what all recorded, and must know who they are.
            raise BadInput(
                f"--rank {rank} doesn't say how many processes there are, and no variable of Slurm "
                f"or MPI does; write --rank {rank}/COUNT"
            )
        return Rank(rank, max(count or 1, rank + 1))


def is_launched(environment: Mapping[str, str]) -> bool:
    """Whether a launcher started this process as one of its ranks, be it the only one."""
    return _launched_rank(environment) is not None


def _launched_rank(environment: Mapping[str, str]) -> int | None:
    names = _RANKS if _STEP in environment else _RANKS[:-1]
    return _number(names, environment)


def _number(names: tuple[str, ...], environment: Mapping[str, str]) -> int | None:
    for name in names:
        if environment.get(name, "").isdigit():
            return int(environment[name])
    return None
