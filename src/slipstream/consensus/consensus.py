"""The consensus: the processes of a program agree on what each call runs, or stay as they were.

    rank 0 (the leader)   decides at a meeting, writes the decision once, follows it
    other ranks          wait at the same meeting, read the decision, follow it

A meeting is a boundary between two calls of the program whose number all ranks know beforehand.
Its decision is one key that can be written once. A rank that waits in vain writes `stop` there
itself; whoever is first has decided for all, the leader included. So at no call do two ranks follow
different decisions, whoever dies or stalls when.

What a rank may do alone is leave before it has voted: nothing but the original program can be
decided without its vote. After its vote it waits until the store answers (if the store died, JAX's
own coordination service has died, and JAX ends the job).
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slipstream.consensus.kvstore import FolderStore, JaxStore, KeyValueStore, StoreUnavailable
from slipstream.jaxhooks.compiled_program import CompiledProgram
from slipstream.jaxhooks.distributed import coordination_client
from slipstream.jaxhooks.private_api import JaxChanged
from slipstream.jaxhooks.shutdown import SHUTDOWN

log = logging.getLogger("slipstream")

PATIENCE_S = 120.0
"""how long a rank waits for another at a meeting before it calls the whole off"""
RETRY_S = 1.0
"""between two tries to reach a store that does not answer"""

Message = Mapping[str, Any]
"""what is said and decided: plain JSON"""


def stop(why: str) -> dict[str, Any]:
    """The decision that ends a loop: all ranks run the original program from here on."""
    return {"do": "stop", "why": why}


@dataclass
class Consensus:
    """This process among those that run one program."""

    ranks: tuple[int, ...] = (0,)
    rank: int = 0
    store: KeyValueStore | None = None
    """None for a process on its own, who hears and follows itself"""
    name: str = "slipstream"
    patience_s: float = PATIENCE_S
    has_voted: bool = False
    has_left: bool = False
    _said: dict[str, Message] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_alone(self) -> bool:
        return len(self.ranks) == 1

    @property
    def is_leader(self) -> bool:
        return self.rank == self.ranks[0]

    def publish(self, topic: str, words: Message) -> bool:
        """This rank's word on a topic; False where nobody can hear it."""
        self._said[topic] = words
        if self.store is None:
            return True
        try:
            self.store.put(f"{self.name}/said/{topic}/{self.rank}", _bytes(words))
        except StoreUnavailable as problem:
            log.warning("slipstream: rank %d can't reach the others: %s", self.rank, problem)
            return False
        return True

    def vote(self, words: Message) -> bool:
        """The word after which this rank is bound by what the others decide."""
        with self._lock:
            if self.has_left:
                return False
            self.has_voted = "problem" not in words
        return self.publish("vote", words)

    def leave(self, why: str) -> bool:
        """Go, and say so; False for a rank that has voted, which is bound."""
        with self._lock:
            if self.has_voted:
                return False
            self.has_left = True
        if not self.is_alone:
            self.publish("vote", {"problem": why})
        return True

    def received(self, topic: str) -> dict[int, Message]:
        """What the ranks have said by now, by rank."""
        if self.store is None:
            return {self.rank: self._said[topic]} if topic in self._said else {}
        try:
            found = self.store.with_prefix(f"{self.name}/said/{topic}")
        except StoreUnavailable:
            return {}
        return {int(rank): json.loads(words) for rank, words in found.items()}

    def wait_for_all(
        self, topic: str, patience_s: float | None = None
    ) -> dict[int, Message] | None:
        """What all ranks say, waited for; None where one of them keeps silent."""
        end = time.monotonic() + (self.patience_s if patience_s is None else patience_s)
        while True:
            found = self.received(topic)
            if found.keys() >= set(self.ranks):
                return found
            if time.monotonic() > end or SHUTDOWN.is_set():
                return None
            time.sleep(0.01)

    def missing(self, topic: str) -> str:
        """The ranks that have not spoken, for a sentence."""
        missing = sorted(set(self.ranks) - self.received(topic).keys())
        return ", ".join(f"rank {rank}" for rank in missing) or "a rank"

    def decide(
        self, meeting: str, proposal: Message | None = None, patience_s: float | None = None
    ) -> Message:
        """The one decision of a meeting, the same on every rank.

        The leader proposes; others give None and wait, and propose to stop if the leader is late.
        """
        # A leader may be waiting for a rank itself: those who wait for it wait longer.
        wait_s = 2 * (self.patience_s if patience_s is None else patience_s)
        if self.store is None:
            return proposal or stop("there was nobody to decide")
        begin = time.monotonic()
        while True:
            try:
                return self._decided(self.store, meeting, proposal, wait_s)
            except StoreUnavailable as problem:
                why = f"the other ranks can't be reached: {problem}"
                if self.leave(why):
                    return stop(why)
                _complain(begin, problem)
            time.sleep(RETRY_S)

    def propose(self, propose: Callable[[], Message], what: str = "") -> Message | None:
        """The leader's proposal. Whatever goes wrong with it, the others are told: they wait."""
        if not self.is_leader:
            return None
        try:
            return propose()
        except Exception as error:
            # Whatever it is: the others wait for this word, until they lose patience.
            log.warning("slipstream: %s", what or "measuring stopped", exc_info=True)
            return stop(": ".join(filter(None, (what, type(error).__name__, str(error)))))

    def _decided(
        self, store: KeyValueStore, meeting: str, proposal: Message | None, wait_s: float
    ) -> Message:
        key = f"{self.name}/decision/{meeting}"
        found = self._awaited(store, key, wait_s) if proposal is None else None
        if found is None:
            late = stop(f"rank {self.ranks[0]} did not decide within {wait_s:.0f} s")
            store.put(key, _bytes(proposal or late))
            found = store.get(key, 1.0)
        if found is None:
            raise StoreUnavailable("a decision was written and can't be read")
        decided: Message = json.loads(found)
        if decided["do"] == "stop":
            store.put(f"{self.name}/ended", found)
        return decided

    def _awaited(self, store: KeyValueStore, key: str, wait_s: float) -> bytes | None:
        """The leader's decision; where the loop has ended before this rank joined it, that."""
        end = time.monotonic() + wait_s
        while time.monotonic() < end and not SHUTDOWN.is_set():
            found = store.get(key, min(1.0, wait_s))
            if found is None and (over := store.get(f"{self.name}/ended")) is not None:
                # Written after the decision of any meeting that took place.
                found = store.get(key) or over
            if found is not None:
                return found
        return None


_LOOPS: Counter[str] = Counter()
_LOCK = threading.Lock()


class NoConsensus(Exception):
    """A program runs on several processes, and there is no way to agree with them."""


def consensus_for(
    watched: CompiledProgram, folder: Path, patience_s: float = PATIENCE_S
) -> Consensus:
    """The consensus of a program: nobody else, JAX's coordination service, or a shared folder."""
    ranks = watched.processes
    if len(ranks) == 1:
        return Consensus(ranks, ranks[0])
    # Programs that span processes begin in the same order everywhere, so a count names them.
    with _LOCK:
        key = f"{watched.name[:80]}/{'-'.join(map(str, ranks)) if len(ranks) < 9 else len(ranks)}"
        _LOOPS[key] += 1
        name = f"slipstream/{key}/{_LOOPS[key]}"
    return Consensus(ranks, _own_rank(), _store(folder), name, patience_s)


def _store(folder: Path) -> KeyValueStore:
    try:
        client = coordination_client()
    except JaxChanged as changed:
        raise NoConsensus(str(changed)) from changed
    if client is not None:
        return JaxStore(client)
    session = job_id(os.environ)
    if session is None:
        raise NoConsensus(
            "this program runs on several processes, and they have no way to agree: "
            "jax.distributed.initialize() was not called, and no variable names this job "
            "(SLIPSTREAM_SESSION, the same on all ranks and new for each job)"
        )
    return FolderStore(folder / "consensus" / session)


def job_id(environment: Mapping[str, str]) -> str | None:
    """What tells this job from an earlier one in the same folder; the same on all its ranks."""
    for names in _SESSIONS:
        if names[0] in environment:
            return "-".join(environment.get(name, "0") for name in names)
    return None


_SESSIONS: Sequence[Sequence[str]] = (
    ("SLIPSTREAM_SESSION",),
    # Before Slurm's: one batch script may start several mpirun.
    ("OMPI_MCA_ess_base_jobid",),
    ("PMIX_NAMESPACE", "SLURM_RESTART_COUNT"),
    ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"),
)


def _own_rank() -> int:
    import jax

    return int(jax.process_index())


def _bytes(words: Message) -> bytes:
    return json.dumps(words).encode()


def _complain(begin: float, problem: StoreUnavailable) -> None:
    waited = time.monotonic() - begin
    if waited > 1:
        log.warning(
            "slipstream: waiting since %.0f s to learn what the other ranks run: %s",
            waited, problem,
        )  # fmt: skip
