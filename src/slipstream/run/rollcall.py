"""Do all ranks of a job see one folder?  Each leaves its name there, and counts.

Whoever waits in vain writes that down, once, and all who come later go by it: in a folder that is
shared, all ranks get the same answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from slipstream.consensus.consensus import job_id
from slipstream.consensus.kvstore import FolderStore, poll
from slipstream.run.rank import Rank

LONGEST_WAIT_S = 120.0
"""between the first rank that starts and the last"""
ALL, SOME = b"all", b"some"


def all_ranks_share(
    folder: Path, rank: Rank, environment: Mapping[str, str], patience_s: float = LONGEST_WAIT_S
) -> bool:
    """Whether every rank is seen in the folder in time.

    Without a name for the job nobody could tell its ranks from those of an earlier one; then the
    folder is taken to be shared, as it is on one machine.
    """
    session = job_id(environment)
    if rank.count == 1 or session is None:
        return True
    store = FolderStore(folder / "ranks" / session)
    store.put(f"present/{rank.index}", b"")

    def answer() -> bytes | None:
        if len(store.with_prefix("present")) == rank.count:
            store.put("answer", ALL)
        return store.get("answer")

    if poll(answer, patience_s, every_s=0.1) is None:
        store.put("answer", SOME)
    return store.get("answer", wait_s=1.0) == ALL
