"""Which rank of the job this process is, and whether all ranks share the run's folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from slipstream.consensus.consensus import job_id
from slipstream.consensus.kvstore import FolderStore, poll
from slipstream.errors import BadInput

LAUNCHERS = ("srun", "mpirun", "mpiexec")
"""commands that start the processes of a job"""
LONGEST_WAIT_S = 60.0
"""between the first rank that starts and the last"""
ALL, SOME = b"all", b"some"


@dataclass(frozen=True)
class RankSource:
    """Variables that tell a process its rank."""

    name: str
    index: str
    counts: tuple[str, ...]
    """the first that is set counts"""
    about: str
    """who sets these variables, and when they count"""
    needs: tuple[str, ...] = ()
    """variables that must be set too"""
    unless: tuple[str, ...] = ()
    """variables that must not be set"""
    counts_in_batch: bool = True
    """whether it counts in a Slurm batch script or interactive shell, which are one process"""
    needs_count: bool = True
    """whether the index alone says nothing"""
    is_launcher: bool = False
    """whether a launcher sets them, which also ends the process"""
    group: tuple[str, str] | None = None
    """a group's number, and how many processes each group has, if the index counts within groups"""


SOURCES = (
    RankSource(
        "JAX",
        "JAX_PROCESS_ID",
        ("JAX_NUM_PROCESSES", "JAX_PROCESS_COUNT"),
        "set by whoever starts the processes, for `jax.distributed.initialize`",
    ),
    RankSource(
        "torchrun",
        "RANK",
        ("WORLD_SIZE",),
        "torchrun and similar launchers set `LOCAL_RANK` as well",
        needs=("LOCAL_RANK",),
        is_launcher=True,
    ),
    RankSource(
        "Open MPI",
        "OMPI_COMM_WORLD_RANK",
        ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"),
        "`mpirun`; before Slurm, which says 0 to all ranks of an `mpirun` in a batch script",
        needs_count=False,
        is_launcher=True,
    ),
    RankSource(
        "PMI",
        "PMI_RANK",
        ("PMI_SIZE", "SLURM_NTASKS"),
        "MPICH, Intel MPI, `srun --mpi=pmi2`",
        needs_count=False,
        is_launcher=True,
    ),
    RankSource(
        "PMIx",
        "PMIX_RANK",
        ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"),
        "`srun --mpi=pmix` and PRRTE; PMIx itself has no variable for the count",
        needs_count=False,
        is_launcher=True,
    ),
    RankSource(
        "Slurm",
        "SLURM_PROCID",
        ("SLURM_NTASKS",),
        "`srun`; not in a batch script or an interactive shell, which are one process",
        counts_in_batch=False,
        needs_count=False,
        is_launcher=True,
    ),
    RankSource(
        "RANK",
        "RANK",
        ("WORLD_SIZE",),
        "without `LOCAL_RANK`: set by hand or by an operator; not in a Slurm batch script",
        unless=("LOCAL_RANK",),
        counts_in_batch=False,
    ),
    RankSource(
        "NODE_RANK",
        "NODE_RANK",
        ("NNODES",),
        "MaxText on GPUs, one process for each node",
        needs=("JAX_COORDINATOR_IP",),
    ),
    RankSource(
        "Kubernetes",
        "JOB_COMPLETION_INDEX",
        ("JAX_NUM_PROCESSES", "JAX_PROCESS_COUNT", "NUM_PROCESSES", "WORLD_SIZE"),
        "an indexed Job or a JobSet (with `JOB_INDEX` × `PROCESSES_IN_JOB` before it), if the pod "
        "also says how many there are",
        group=("JOB_INDEX", "PROCESSES_IN_JOB"),
    ),
)
"""in order of precedence: what is set closest to the process first"""
_PSEUDO_STEPS = 0xFFFFFFFA
"""numbers from which Slurm names batch scripts and interactive shells, not steps of `srun`"""


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
        """As typed, else as the first of the sources says, else a single process."""
        if typed is None:
            return next((_rank(index, count) for _, index, count in _found(environment)), Rank())
        index, count = typed
        names = dict.fromkeys(name for source in SOURCES for name in source.counts)
        count = count or next((n for name in names if (n := _number(name, environment))), None)
        if count is None:
            # The first rank merges the recordings of all, so it has to know how many there are.
            raise BadInput(
                f"--rank {index} doesn't say how many processes there are, and no variable of "
                f"Slurm or MPI does; write --rank {index}/COUNT"
            )
        return _rank(index, count)


def rank_notes(environment: Mapping[str, str]) -> tuple[str, ...]:
    """What is doubtful about the rank: sources that disagree, or one that says only half."""
    found = list(_found(environment))
    if not found:
        return _half_known(environment)
    (taken, own_index, own_count), *others = found
    rank = _rank(own_index, own_count)
    against = [
        f"{source.name} ({source.index}) says {index}" + (f" of {count}" if count else "")
        for source, index, count in others
        if index != rank.index or count not in (None, rank.count)
    ]
    if not against:
        return ()
    return (
        f"this is rank {rank.index} of {rank.count}, from {taken.name} ({taken.index}), but "
        f"{', '.join(against)}; if that is wrong, give each process its --rank N/COUNT",
    )


def _half_known(environment: Mapping[str, str]) -> tuple[str, ...]:
    for source in SOURCES:
        if source.index in environment and _is_set(source, environment) and source.needs_count:
            return (
                f"{source.index} is {environment[source.index]}, but {' or '.join(source.counts)} "
                "is not set: this counts as the only process; if it is one of several, give each "
                "its --rank N/COUNT",
            )
    if "JAX_COORDINATOR_ADDRESS" in environment:
        return (
            "JAX_COORDINATOR_ADDRESS is set, but no variable says which process this is: it counts "
            "as the only one; if it is one of several, give each its --rank N/COUNT",
        )
    return ()


def more_processes_note(known: Rank, processes: int) -> str | None:
    """What `jax.distributed` says that neither a variable nor --rank did; None if they agree.

    A script may pass its rank to `jax.distributed.initialize` itself, where only JAX sees it.
    """
    if processes <= known.count:
        return None
    return (
        f"jax.distributed has {processes} processes, but slipstream run knew of {known.count}: "
        "each decides with the others and reports for itself; for one report and one folder, give "
        "each its --rank N/COUNT"
    )


def is_launched(environment: Mapping[str, str]) -> bool:
    """Whether a launcher started this process as one of its ranks, even if it is the only one."""
    return any(source.is_launcher for source, *_ in _found(environment))


def _rank(index: int, count: int | None) -> Rank:
    return Rank(index, max(count or 1, index + 1))


def _found(environment: Mapping[str, str]) -> Iterator[tuple[RankSource, int, int | None]]:
    """Every source that knows this process's rank, with its index and count."""
    for source in SOURCES:
        index = _number(source.index, environment)
        count = next((n for name in source.counts if (n := _number(name, environment))), None)
        if index is None or not _is_set(source, environment):
            continue
        if source.group is not None:
            group, size = (_number(name, environment) for name in source.group)
            index += (group or 0) * (size or 0)
        if count is None and source.needs_count:
            continue
        yield source, index, count


def _is_set(source: RankSource, environment: Mapping[str, str]) -> bool:
    """Whether the source counts in this environment, apart from its index and count."""
    if not source.counts_in_batch and _is_batch(environment):
        return False
    has_all = all(name in environment for name in source.needs)
    return has_all and not any(name in environment for name in source.unless)


def _is_batch(environment: Mapping[str, str]) -> bool:
    """Whether Slurm started this process, but not srun.

    A batch script has SLURM_PROCID and SLURM_NTASKS, as a step of srun has them.
    """
    step = _number("SLURM_STEP_ID", environment)
    return "SLURM_PROCID" in environment and (step is None or step >= _PSEUDO_STEPS)


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


def _number(name: str, environment: Mapping[str, str]) -> int | None:
    text = environment.get(name, "")
    return int(text) if text.isdigit() else None
