"""Consensus: the processes of a program agree on what each call runs, or keep what they run.

    the leader (first rank)   decides at a meeting, writes the decision once, follows it
    other ranks               wait at the same meeting, read the decision, follow it

A meeting is a boundary between two calls of the program that all ranks know in advance. Its
decision is one key that can be written only once. A rank that waits too long decides itself, to go
on until a later meeting or to `stop`; the first to write has decided for all, the leader included.
So no two ranks ever follow different decisions at the same call, no matter which rank dies or
stalls, or when. How long a rank waits is in `patience.py`.

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
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slipstream.consensus.kvstore import (
    FolderStore,
    JaxStore,
    KeyValueStore,
    StoreUnavailable,
)
from slipstream.consensus.patience import Patience, StepWaits
from slipstream.jaxhooks.compat import JaxChanged
from slipstream.jaxhooks.compiled_program import CompiledProgram
from slipstream.jaxhooks.distributed import coordination_client
from slipstream.jaxhooks.shutdown import SHUTDOWN

log = logging.getLogger("slipstream")

RETRY_S = 1.0
"""between two attempts to reach a store that does not answer"""
COMPRESSED_BYTES = 16_384
"""messages from this size on are compressed: the costs of large programs are megabytes"""
MAX_NAMED = 8
"""ranks that a sentence names"""

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
    patience: Patience = Patience()
    has_voted: bool = False
    has_left: bool = False
    waits: StepWaits = field(init=False)
    _inbox: defaultdict[str, dict[int, Message]] = field(default_factory=lambda: defaultdict(dict))
    """messages by topic and rank; each is read once, because a key is written only once"""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.waits = StepWaits(self.patience)

    @property
    def is_alone(self) -> bool:
        return len(self.ranks) == 1

    @property
    def is_leader(self) -> bool:
        return self.rank == self.ranks[0]

    def publish(self, topic: str, message: Message) -> bool:
        """Send this rank's message on a topic; False if the others can't be reached."""
        self._inbox[topic][self.rank] = message
        if self.store is None:
            return True
        try:
            self.store.put(self._key(topic, self.rank), _bytes(message))
        except StoreUnavailable as problem:
            log.warning("slipstream: rank %d can't reach the others: %s", self.rank, problem)
            return False
        return True

    def vote(self, message: Message) -> bool:
        """Send the message after which this rank must follow every decision."""
        with self._lock:
            if self.has_left:
                return False
            self.has_voted = True
        return self.publish("vote", message)

    def leave(self, why: str) -> bool:
        """Leave, and tell the others; False for a rank that has voted, which must stay."""
        with self._lock:
            if self.has_voted:
                return False
            self.has_left = True
        self.publish("left", {"why": why})
        if self.is_leader and self.store is not None:
            # No rank shall wait for a leader that is gone.
            with suppress(StoreUnavailable):
                self._followed(self.store, _bytes(stop(f"rank {self.rank}: {why}")))
        return True

    def complaint(self) -> str | None:
        """Why a rank has left or wants to stop, as a sentence; None if all ranks go on."""
        for topic in ("left", "veto"):
            for rank, message in sorted(self.received(topic).items()):
                return str(message["why"]) if self.is_alone else f"rank {rank}: {message['why']}"
        return None

    def from_rank(self, rank: int, topic: str, wait_s: float = 0.0) -> Message | None:
        """The message of one rank on a topic; None if it sends none in time."""
        inbox = self._inbox[topic]
        if rank not in inbox and self.store is not None:
            try:
                found = self.store.get(self._key(topic, rank), wait_s)
            except StoreUnavailable:
                return None
            if found is not None:
                inbox[rank] = _message(found)
        return inbox.get(rank)

    def from_all(
        self, topic: str, wait_s: float = 0.0, ranks: Sequence[int] | None = None
    ) -> dict[int, Message] | None:
        """The messages of all ranks, or of these; None if one of them sends none in time.

        Ranks are asked for one after the other, and only until they have answered: to ask again
        costs as much for a thousand ranks as for two.
        """
        end = time.monotonic() + wait_s
        ranks = self.ranks if ranks is None else ranks
        for rank in ranks:
            while self.from_rank(rank, topic, max(end - time.monotonic(), 0.0)) is None:
                left = end - time.monotonic()
                if left <= 0 or SHUTDOWN.is_set() or self.store is None:
                    return None
                time.sleep(min(RETRY_S, left))
        return {rank: self._inbox[topic][rank] for rank in ranks}

    def wait_for_all(self, topic: str) -> dict[int, Message] | None:
        """The messages of all ranks on a topic, for which a step waits; None if one is late."""
        wait_s = self.waits.for_messages_s
        with self.waits.measured():
            found = self.from_all(topic, wait_s)
        if found is None:
            self.waits.in_vain(wait_s)
        return found

    def missing(self, topic: str, ranks: Sequence[int] | None = None) -> str:
        """The ranks that have sent nothing on a topic, for a sentence."""
        expected = self.ranks if ranks is None else ranks
        missing = sorted(set(expected) - self.received(topic).keys())
        shown = [f"rank {rank}" for rank in missing[:MAX_NAMED]]
        more = [f"{len(missing) - MAX_NAMED} more"] if len(missing) > MAX_NAMED else []
        return ", ".join(shown + more) or "a rank"

    def received(self, topic: str) -> dict[int, Message]:
        """The messages sent on a topic so far, by rank: for topics on which few ranks send."""
        if self.store is None:
            return self._inbox[topic]
        try:
            found = self.store.with_prefix(f"{self.name}/said/{topic}")
        except StoreUnavailable:
            return {}
        return {int(rank): _message(data) for rank, data in found.items()}

    def _key(self, topic: str, rank: int) -> str:
        return f"{self.name}/said/{topic}/{rank}"

    def decide(
        self, meeting: str, proposal: Message | None = None, if_late: Message | None = None
    ) -> Message:
        """The one decision of a meeting, the same on every rank. A step waits for it.

        The leader proposes. Other ranks pass None and wait; if the leader is late, they decide
        what `if_late` says, else to stop.
        """
        wait_s = self.waits.left_s if if_late is None else self.waits.for_meeting_s

        def late() -> Message:
            self.waits.in_vain(wait_s)
            can_wait = if_late is not None and self.waits.left_s > 0
            return if_late if if_late and can_wait else self._too_late(self.patience.step_s)

        with self.waits.measured():
            return self._decide(meeting, proposal, wait_s, late)

    def decide_in_background(self, meeting: str, proposal: Message | None = None) -> Message:
        """The same, where no step waits."""
        # The leader may be waiting for a rank itself, so the others wait longer than it does.
        wait_s = 2 * self.patience.background_s
        return self._decide(meeting, proposal, wait_s, lambda: self._too_late(wait_s))

    def _too_late(self, wait_s: float) -> Message:
        return stop(f"rank {self.ranks[0]} did not decide within {wait_s:.0f} s")

    def _decide(
        self, meeting: str, proposal: Message | None, wait_s: float, late: Callable[[], Message]
    ) -> Message:
        if self.store is None:
            return proposal or stop("there was nobody to decide")
        key = f"{self.name}/decision/{meeting}"
        begin = time.monotonic()
        while True:
            try:
                if proposal is None:
                    found = self._awaited(self.store, key, begin + wait_s)
                    if found is not None:
                        return self._followed(self.store, found)
                    proposal = late()
                return self._followed(self.store, self._written(self.store, key, proposal))
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

    def _awaited(self, store: KeyValueStore, key: str, end: float) -> bytes | None:
        """The leader's decision, or the one that ended the loop before this rank joined it."""
        while (left := end - time.monotonic()) > 0 and not SHUTDOWN.is_set():
            found = store.get(key, min(1.0, left))
            if found is None and (over := store.get(f"{self.name}/ended")) is not None:
                # It is written after the decision of every meeting that took place.
                found = store.get(key) or over
            if found is not None:
                return found
        return None

    def _written(self, store: KeyValueStore, key: str, proposal: Message) -> bytes:
        """The decision after this rank has proposed one; another rank may have been first."""
        store.put(key, _bytes(proposal))
        found = store.get(key, 1.0)
        if found is None:
            raise StoreUnavailable("a decision was written and can't be read")
        return found

    def _followed(self, store: KeyValueStore, found: bytes) -> Message:
        decided = _message(found)
        if decided["do"] == "stop":
            store.put(f"{self.name}/ended", found)
        return decided


_LOOPS: Counter[str] = Counter()
"""loops started in this process, by program and ranks: the count tells a loop from earlier ones"""
_LOOPS_LOCK = threading.Lock()


class NoConsensus(Exception):
    """A program runs on several processes that have no way to agree."""


def consensus_for(
    compiled: CompiledProgram, folder: Path, patience: Patience | None = None
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
    return Consensus(ranks, _own_rank(), store_for(folder), name, patience or Patience())


def store_for(folder: Path) -> KeyValueStore:
    """JAX's coordination service, or a folder that all ranks see; NoConsensus without either."""
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
        if environment.get(names[0], _NO_ID) != _NO_ID:
            return "-".join(environment.get(name, "0") for name in names)
    return None


_JOB_VARIABLES: Sequence[Sequence[str]] = (
    ("SLIPSTREAM_SESSION",),
    # Before Slurm's: one batch script may start several mpirun.
    ("OMPI_MCA_ess_base_jobid",),
    ("PMIX_NAMESPACE", "SLURM_RESTART_COUNT"),
    ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"),
    ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"),
)
_NO_ID = "none"
"""what torchrun says where nobody gave the job an id"""


def _own_rank() -> int:
    import jax

    return int(jax.process_index())


def _bytes(message: Message) -> bytes:
    data = json.dumps(message).encode()
    return zlib.compress(data, level=1) if len(data) > COMPRESSED_BYTES else data


def _message(data: bytes) -> Message:
    # What is compressed doesn't begin as JSON does.
    found: Message = json.loads(data if data.startswith(b"{") else zlib.decompress(data))
    return found


def _warn_of_wait(begin: float, problem: StoreUnavailable) -> None:
    waited = time.monotonic() - begin
    if waited > 1:
        log.warning(
            "slipstream: for %.0f s this rank has waited to learn what the other ranks run: %s",
            waited, problem,
        )  # fmt: skip
