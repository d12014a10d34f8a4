"""Consensus: the processes of a program agree on what each call runs, or keep what they run.

    the leader (first rank)   decides at a meeting, writes the decision once, follows it
    other ranks               wait at the same meeting, read the decision, follow it

A meeting is a boundary between two calls of the program that all ranks know in advance. Its
decision is one key that can be written only once. A rank that waits too long writes `stop` there
itself; the first to write has decided for all, the leader included. So no two ranks ever follow
different decisions at the same call, no matter which rank dies or stalls, or when.

A rank may leave on its own only before it has voted: without its vote, the ranks can decide on
nothing but the original program. After its vote it waits until the store answers. (If the store is
dead, so is JAX's own coordination service, and JAX ends the job.)
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

from slipstream.consensus.kvstore import (
    FolderStore,
    JaxStore,
    KeyValueStore,
    StoreUnavailable,
    poll,
)
from slipstream.jaxhooks.compat import JaxChanged
from slipstream.jaxhooks.compiled_program import CompiledProgram
from slipstream.jaxhooks.distributed import coordination_client
from slipstream.jaxhooks.shutdown import SHUTDOWN

log = logging.getLogger("slipstream")

PATIENCE_S = 120.0
"""how long a rank waits for another at a meeting before it stops the loop for all"""
RETRY_S = 1.0
"""between two attempts to reach a store that does not answer"""

Message = Mapping[str, Any]
"""what ranks send and decide: plain JSON"""


def stop(why: str) -> dict[str, Any]:
    """The decision that ends a loop: all ranks run the original program from here on."""
    return {"do": "stop", "why": why}


@dataclass
class Consensus:
    """This process as one of those that run a program."""

    ranks: tuple[int, ...] = (0,)
    rank: int = 0
    store: KeyValueStore | None = None
    """None for a process on its own, which sends messages to itself"""
    name: str = "slipstream"
    patience_s: float = PATIENCE_S
    has_voted: bool = False
    has_left: bool = False
    _sent: dict[str, Message] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_alone(self) -> bool:
        return len(self.ranks) == 1

    @property
    def is_leader(self) -> bool:
        return self.rank == self.ranks[0]

    def publish(self, topic: str, message: Message) -> bool:
        """Send this rank's message on a topic; False if the others can't be reached."""
        self._sent[topic] = message
        if self.store is None:
            return True
        try:
            self.store.put(f"{self.name}/said/{topic}/{self.rank}", _bytes(message))
        except StoreUnavailable as problem:
            log.warning("slipstream: rank %d can't reach the others: %s", self.rank, problem)
            return False
        return True

    def vote(self, message: Message) -> bool:
        """Send the message after which this rank must follow every decision."""
        with self._lock:
            if self.has_left:
                return False
            self.has_voted = "problem" not in message
        return self.publish("vote", message)

    def leave(self, why: str) -> bool:
        """Leave, and tell the others; False for a rank that has voted, which must stay."""
        with self._lock:
            if self.has_voted:
                return False
            self.has_left = True
        if not self.is_alone:
            self.publish("vote", {"problem": why})
        return True

    def received(self, topic: str) -> dict[int, Message]:
        """The messages sent on a topic so far, by rank."""
        if self.store is None:
            return {self.rank: self._sent[topic]} if topic in self._sent else {}
        try:
            found = self.store.with_prefix(f"{self.name}/said/{topic}")
        except StoreUnavailable:
            return {}
        return {int(rank): json.loads(message) for rank, message in found.items()}

    def wait_for_all(
        self, topic: str, patience_s: float | None = None
    ) -> dict[int, Message] | None:
        """The messages of all ranks on a topic; None if one of them sends none in time."""

        def from_all() -> dict[int, Message] | None:
            found = self.received(topic)
            return found if found.keys() >= set(self.ranks) else None

        return poll(from_all, self.patience_s if patience_s is None else patience_s, every_s=0.01)

    def missing(self, topic: str) -> str:
        """The ranks that have sent nothing on a topic, for a sentence."""
        missing = sorted(set(self.ranks) - self.received(topic).keys())
        return ", ".join(f"rank {rank}" for rank in missing) or "a rank"

    def decide(
        self, meeting: str, proposal: Message | None = None, patience_s: float | None = None
    ) -> Message:
        """The one decision of a meeting, the same on every rank.

        The leader proposes. Other ranks pass None and wait; if the leader is late, they stop.
        """
        # The leader may be waiting for a rank itself, so the others wait longer than it does.
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
                _warn_of_wait(begin, problem)
            time.sleep(RETRY_S)

    def propose(self, propose: Callable[[], Message], what: str = "") -> Message | None:
        """The leader's proposal: to stop, if making one fails. None on other ranks."""
        if not self.is_leader:
            return None
        try:
            return propose()
        except Exception as error:
            # Whatever it is: the others are waiting for a decision.
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
        """The leader's decision, or the one that ended the loop before this rank joined it."""
        end = time.monotonic() + wait_s
        while time.monotonic() < end and not SHUTDOWN.is_set():
            found = store.get(key, min(1.0, wait_s))
            if found is None and (over := store.get(f"{self.name}/ended")) is not None:
                # It is written after the decision of every meeting that took place.
                found = store.get(key) or over
            if found is not None:
                return found
        return None


_LOOPS: Counter[str] = Counter()
"""loops started in this process, by program and ranks: the count tells a loop from earlier ones"""
_LOOPS_LOCK = threading.Lock()


class NoConsensus(Exception):
    """A program runs on several processes that have no way to agree."""


def consensus_for(
    compiled: CompiledProgram, folder: Path, patience_s: float = PATIENCE_S
) -> Consensus:
    """The consensus of a program: alone, by JAX's coordination service, or by a shared folder."""
    ranks = compiled.processes
    if len(ranks) == 1:
        return Consensus(ranks, ranks[0])
    # Programs that span processes start in the same order everywhere, so a count names them.
    with _LOOPS_LOCK:
        key = f"{compiled.name[:80]}/{'-'.join(map(str, ranks)) if len(ranks) < 9 else len(ranks)}"
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
    """Tells this job from an earlier one in the same folder; the same on all its ranks."""
    for names in _JOB_VARIABLES:
        if names[0] in environment:
            return "-".join(environment.get(name, "0") for name in names)
    return None


_JOB_VARIABLES: Sequence[Sequence[str]] = (
    ("SLIPSTREAM_SESSION",),
    # Before Slurm's: one batch script may start several mpirun.
    ("OMPI_MCA_ess_base_jobid",),
    ("PMIX_NAMESPACE", "SLURM_RESTART_COUNT"),
    ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"),
)


def _own_rank() -> int:
    import jax

    return int(jax.process_index())


def _bytes(message: Message) -> bytes:
    return json.dumps(message).encode()


def _warn_of_wait(begin: float, problem: StoreUnavailable) -> None:
    waited = time.monotonic() - begin
    if waited > 1:
        log.warning(
            "slipstream: for %.0f s this rank has waited to learn what the other ranks run: %s",
            waited, problem,
        )  # fmt: skip
