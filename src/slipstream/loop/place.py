"""Which of the job's processes this is, as launchers tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slipstream.errors import BadInput

_RANKS = ("SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")
_COUNTS = ("SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")


@dataclass(frozen=True)
class Place:
    """One process among those that were started with the same command."""

    rank: int = 0
    count: int = 1

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    @staticmethod
    def here(typed: tuple[int, int | None] | None, environment: Mapping[str, str]) -> Place:
        """By what was typed, else by Slurm's, Open MPI's or PMI's variables, else alone."""
        rank, count = typed or (_number(_RANKS, environment), None)
        count = count or _number(_COUNTS, environment)
        if rank is None:
            return Place()
        if typed and count is None:
            # The first rank merges what all recorded, and must know who they are.
            raise BadInput(
                f"--rank {rank} doesn't say how many processes there are, and no variable of Slurm "
                f"or MPI does; write --rank {rank}/COUNT"
            )
        return Place(rank, max(count or 1, rank + 1))


def _number(names: tuple[str, ...], environment: Mapping[str, str]) -> int | None:
    for name in names:
        if environment.get(name, "").isdigit():
            return int(environment[name])
    return None
