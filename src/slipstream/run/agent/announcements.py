"""On several ranks, the first one chooses what is measured, and announces it to the others.

Device times differ from rank to rank, so choices would. Each announcement is a numbered key of the
store through which ranks agree; the other ranks wait for the next one in a thread, not in a step.
"""

from __future__ import annotations

import json
import logging
import threading
from dataclasses import dataclass
from pathlib import Path

from slipstream.consensus.consensus import NoConsensus, store_for
from slipstream.consensus.kvstore import KeyValueStore, StoreUnavailable
from slipstream.jaxhooks.compiled_program import CompiledProgram
from slipstream.jaxhooks.shutdown import SHUTDOWN
from slipstream.reading import DAMAGE, describe
from slipstream.run.agent.program_dump import content_of

log = logging.getLogger("slipstream")

OVER = "over"
"""announces that nothing more will be measured"""
POLL_S = 1.0


@dataclass(frozen=True)
class Announcement:
    """A program that all ranks are to measure, or the end."""

    program: str
    content: str

    @property
    def is_over(self) -> bool:
        return self.program == OVER

    def is_of(self, program: CompiledProgram) -> bool:
        return program.name == self.program and content_of(program) == self.content


class Announcements:
    """The choices of the first rank, as this rank makes or hears them."""

    def __init__(self, store: KeyValueStore, phase: str, *, is_leader: bool) -> None:
        self.is_leader = is_leader
        self._store = store
        self._prefix = f"slipstream/hot/{phase}"
        self._count = 0
        self._heard: Announcement | None = None
        self._lock = threading.Lock()
        if not is_leader:
            # A daemon, never inside XLA: it may be gone with the process at any time.
            threading.Thread(target=self._listen, name="slipstream-hot", daemon=True).start()

    def announce(self, program: CompiledProgram | None) -> None:
        """Tell the other ranks what is measured next; None once nothing is."""
        name, content = (program.name, content_of(program)) if program else (OVER, "")
        message = json.dumps({"program": name, "content": content}).encode()
        self._count += 1
        try:
            self._store.put(f"{self._prefix}/{self._count}", message)
        except StoreUnavailable as problem:
            log.warning("slipstream: the other ranks were not told what is measured: %s", problem)

    def heard(self) -> Announcement | None:
        """The last announcement that was not followed yet."""
        return self._heard

    def follow(self) -> None:
        """This rank does what was announced."""
        with self._lock:
            self._heard = None

    def _listen(self) -> None:
        while not SHUTDOWN.is_set():
            try:
                found = self._store.get(f"{self._prefix}/{self._count + 1}", POLL_S)
            except StoreUnavailable:
                return  # the job is ending
            if found is None:
                continue
            self._count += 1
            try:
                message = Announcement(**json.loads(found))
            except DAMAGE as problem:
                log.warning("slipstream: an announcement can't be read: %s", describe(problem))
                continue
            with self._lock:
                self._heard = message
            if message.is_over:
                return


def announcements_for(folder: Path, phase: str) -> Announcements | None:
    """None for a process on its own, or one without a way to reach the others."""
    import jax

    if jax.process_count() == 1:
        return None
    try:
        store = store_for(folder)
    except NoConsensus as problem:
        log.warning("slipstream: %s", problem)
        return None
    return Announcements(store, phase, is_leader=jax.process_index() == 0)
