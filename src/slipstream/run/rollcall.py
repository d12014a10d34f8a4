"""Do all ranks of a job see one folder?  Each leaves its name there, and counts.

Whoever waits in vain writes that down, once, and all who come later go by it: in a folder that is
shared, all ranks get the same answer.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

from slipstream.consensus.consensus import job_id
from slipstream.run.rank import Rank

LONGEST_WAIT_S = 120.0
"""between the first rank that starts and the last"""


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
    room = folder / "ranks" / session
    room.mkdir(parents=True, exist_ok=True)
    (room / str(rank.index)).touch()
    end = time.monotonic() + patience_s
    while not (room / "some").exists():
        if all((room / str(index)).exists() for index in range(rank.count)):
            return _decide(room, "all")
        if time.monotonic() > end:
            return _decide(room, "some")
        time.sleep(0.1)
    return False


def _decide(room: Path, answer: str) -> bool:
    """The answer of whoever was first."""
    try:
        os.close(os.open(room / "answer", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        (room / answer).touch()
    except FileExistsError:
        while not (room / "all").exists() and not (room / "some").exists():
            time.sleep(0.05)
    return (room / "all").exists()
