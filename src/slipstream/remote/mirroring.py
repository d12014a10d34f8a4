"""A process beside the work, which copies its folder to a bucket as files become complete.

    slipstream run ──── stdin, closed at the end ────►  python -m slipstream.remote.mirroring
                   ◄─── a line of JSON for each event ─      pull · push · push · … · last push

Whatever a cloud's library does, it does not do it in the process that looks after the job: it can
hang, crash or leave threads. If that process is killed, the end of stdin says so, and what is
there is still copied. Only memory:// is copied by a thread, because it ends with its process.
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from slipstream.errors import BadInput, Missing, SlipstreamError
from slipstream.remote.mirror import Mirror, is_state
from slipstream.remote.paths import RemotePath
from slipstream.remote.systems import failures, protocol_of, shown, system_of
from slipstream.remote.upload import check_writable

EVERY_S = 5.0
"""between two looks at the folder"""
PATIENCE_S = 60.0
"""without a byte moved, after which the work begins without what the bucket has"""
STALLED_S = 180.0
"""the same at the end, after which the bucket counts as out of reach"""
_SOURCES = str(Path(__file__).resolve().parents[2])

Tell = Callable[[dict[str, Any]], None]


def local_folder(url: str, prefix: str) -> Path:
    """Where the work for a URL is done: a folder here, always the same for that URL."""
    name = "".join(c if c.isalnum() or c in "-_." else "-" for c in url.rstrip("/").split("/")[-1])
    key = hashlib.sha256(url.rstrip("/").encode()).hexdigest()[:6]
    return Path(f"{prefix}-{name.strip('.') or 'bucket'}-{key}").absolute()


class Mirroring:
    """The copying of one folder to a bucket, as the process sees it that does the work."""

    def __init__(
        self,
        url: str,
        folder: Path,
        names: Sequence[str],
        warn: Callable[[str], None],
        rank: int = 0,
    ) -> None:
        self.url, self.folder, self.rank = url, folder, rank
        self.names = tuple(names)
        """what the folder may hold: other things in the bucket are not looked at"""
        self._warn = warn
        self._events: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._over = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None

    def start(self) -> None:
        """Copy what the bucket has to the folder, and begin to copy what is new there.

        Raises an error for a URL that never works: no such protocol, no package for it. Any other
        problem is a warning, because the work can be done without the bucket.
        """
        self._begin(self.names)
        first = self._wait_for(PATIENCE_S, "pulled", "problem", "refused")
        if first is None:
            self._warn(f"{self._place} did not answer; {self._here}")
            # What it may still send must not get between files of the work that begins now.
            self._end_process(0.0)
            self._begin(())
        elif "refused" in first:
            self._end_process(5.0)
            raise (Missing if first["is_missing"] else BadInput)(first["refused"])
        elif "problem" in first:
            self._warn(f"{first['problem']}; {self._here}")
        elif first["kept"]:
            names = ", ".join(first["kept"][:3]) + (", …" if len(first["kept"]) > 3 else "")
            self._warn(
                f"{names} changed both in {self._place} and in {self.folder}; those here are used"
            )

    def finish(self) -> bool:
        """Copy the rest; whether everything is in the bucket."""
        self._over.set()
        self._close_stdin()
        last = self._wait_for(STALLED_S, "done")
        if last is None:
            self._warn(f"{self._place} does not answer; {self._copy_by_hand}")
        elif last["problem"]:
            self._warn(f"{last['problem']}; {self._copy_by_hand}")
        self._end_process(5.0 if last is not None else 0.0)
        self._remove_if_empty()
        return last is not None and not last["problem"]

    @property
    def _place(self) -> str:
        return shown(self.url)

    @property
    def _here(self) -> str:
        return f"everything is written to {self.folder}, and copied if the bucket comes back"

    @property
    def _copy_by_hand(self) -> str:
        return (
            f"everything is in {self.folder}; to copy it later: python -m "
            f"slipstream.remote.mirroring {shlex.quote(str(self.folder))} {self._place}"
        )

    def _begin(self, names: Sequence[str]) -> None:
        self._events = queue.Queue()
        arguments = [str(self.folder), self.url, str(self.rank), *names]
        if protocol_of(self.url) == "memory":
            work = threading.Thread(target=self._in_thread, args=arguments, daemon=True)
            work.start()
        else:
            self._begin_process(arguments)

    def _wait_for(self, patience_s: float, *names: str) -> dict[str, Any] | None:
        """The next event with one of these names; None if nothing moves any more."""
        while True:
            try:
                event = self._events.get(timeout=patience_s)
            except queue.Empty:
                return None
            if event is None or any(name in event for name in names):
                return event

    def _in_thread(self, *arguments: str) -> None:
        mirror_until(self._over, self._events.put, *arguments)
        self._events.put(None)

    def _begin_process(self, arguments: list[str]) -> None:
        path = os.pathsep.join(filter(None, (_SOURCES, os.environ.get("PYTHONPATH"))))
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "slipstream.remote.mirroring", *arguments],
                env={**os.environ, "PYTHONPATH": path},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the job
            )
        except OSError:
            self._events.put(None)
            return
        work = (self._process, self._events)
        self._reader = threading.Thread(target=self._read_events, args=work, daemon=True)
        self._reader.start()

    def _read_events(
        self, process: subprocess.Popen[bytes], events: queue.Queue[dict[str, Any] | None]
    ) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                with suppress(ValueError):
                    events.put(json.loads(line))
        events.put(None)

    def _remove_if_empty(self) -> None:
        """Leave no folder behind in which nothing was done."""
        with suppress(OSError):
            if all(is_state(one.name) for one in self.folder.iterdir()):
                for one in self.folder.iterdir():
                    one.unlink()
                self.folder.rmdir()

    def _close_stdin(self) -> None:
        """Say that the work is over."""
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()

    def _end_process(self, patience_s: float) -> None:
        if self._process is None:
            return
        self._close_stdin()
        try:
            self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._reader is not None:
            self._reader.join()


def mirror_until(
    over: threading.Event, tell: Tell, folder: str, url: str, rank: str, *names: str
) -> None:
    """Pull once, push until it is over, and push once more."""
    try:
        system_of(url)
    except SlipstreamError as error:
        tell({"refused": str(error), "is_missing": isinstance(error, Missing)})
        return
    mirror = Mirror(Path(folder), RemotePath(url), int(rank), _throttled(tell))

    def attempt(work: Callable[[], Any]) -> tuple[Any, str]:
        try:
            return work(), ""
        except SlipstreamError as error:
            return None, str(error)
        except failures() as error:
            return None, f"{shown(url)}: {type(error).__name__}: {error}"

    def pull() -> tuple[int, list[str]]:
        check_writable(url)
        Path(folder).mkdir(parents=True, exist_ok=True)
        return mirror.pull(names)

    pulled, problem = attempt(pull)
    tell({"problem": problem} if problem else {"pulled": pulled[0], "kept": pulled[1]})
    while not over.wait(EVERY_S):
        attempt(lambda: mirror.push(is_last=False))
    copied, problem = attempt(lambda: mirror.push(is_last=True))
    tell({"done": copied, "problem": problem})


def _throttled(tell: Tell) -> Callable[[str, int], None]:
    """Tells of progress, at most once a second."""
    last = 0.0

    def moved(name: str, done: int) -> None:
        nonlocal last
        if time.monotonic() - last > 1.0:
            last = time.monotonic()
            tell({"moved": name, "bytes": done})

    return moved


def copy_now(folder: str, url: str) -> int:
    """Copy a folder whose bucket could not be reached, for all ranks that wrote to it."""
    try:
        check_writable(url)
        ranks = {0, *(int(one.name[4:]) for one in Path(folder).glob("*/rank[0-9]*"))}
        bucket = RemotePath(url)
        copied = sum(Mirror(Path(folder), bucket, rank).push(is_last=True) for rank in ranks)
    except SlipstreamError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(f"copied {copied} files to {shown(url)}")
    return 0


def main() -> None:
    """`FOLDER URL`: copy a folder once. With a rank and names: mirror until the end of stdin."""
    if len(sys.argv) == 3:
        sys.exit(copy_now(*sys.argv[1:]))
    over = threading.Event()

    def wait() -> None:
        sys.stdin.buffer.read()
        over.set()

    def tell(event: dict[str, Any]) -> None:
        # Whoever started this may be gone; what is left to copy is copied all the same.
        with suppress(OSError):
            os.write(1, json.dumps(event).encode() + b"\n")

    threading.Thread(target=wait, daemon=True).start()
    mirror_until(over, tell, *sys.argv[1:])
    os._exit(0)


if __name__ == "__main__":
    main()
