"""Faults while files are written: python tests/faults/run.py

kill -9      before and after each call that touches a file, the process is killed
full disk    after each number of bytes, up to the largest file, nothing more can be written
read-only    the folder can't be written at all
two at once  two processes write the old and the new version over and over, while a third reads

Afterwards every file is the old one or the new one, to the byte, and files that belong together do.
Each case is a process of its own, forked from one that has everything imported.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from faults.writers import NEW, OLD, WRITERS, Contents
from slipstream.consensus.kvstore import StoreUnavailable
from slipstream.errors import SlipstreamError

TOUCHES_A_FILE = frozenset(
    (
        *("open", "write", "writelines", "close", "__exit__", "flush", "fsync", "truncate"),
        *("replace", "rename", "link", "symlink", "unlink", "remove", "mkdir", "rmdir"),
        *("chmod", "fchmod", "chown", "utime"),
    )
)
NOBODY = 65534
KILLED, FINISHED, REFUSED, CRASHED = "killed", "finished", "refused", "crashed"


def contents(folder: Path) -> dict[str, bytes]:
    """All files but hidden ones, which nobody reads."""
    files = [f for f in folder.rglob("*") if f.is_file() and not f.name.startswith(".")]
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(files)}


class Case:
    """One writer with its old and its new files."""

    def __init__(self, name: str, place: Path) -> None:
        self.name, self.writer, self.place = name, WRITERS[name], place
        self.folder = place / "folder"
        self._old_folder = place / "old"
        self.old = self._written(self._old_folder, OLD)
        self.new = self._written(shutil.copytree(self._old_folder, place / "new"), NEW)

    def _written(self, folder: Path, version: str) -> dict[str, bytes]:
        folder.mkdir(exist_ok=True)
        self.writer.write(folder, version)
        return contents(folder)

    def fresh(self) -> Path:
        shutil.rmtree(self.folder, ignore_errors=True)
        return shutil.copytree(self._old_folder, self.folder)

    def problem(self) -> str | None:
        """What is wrong with the folder now; None if all is well."""
        found = contents(self.folder)
        for file in found.keys() | self.old.keys():
            allowed = {self.old.get(file), self.new.get(file)}
            if found.get(file) not in allowed and not self._is_companion(file, found):
                return f"{file} is neither the old one nor the new one"
        if not self.writer.are_together(self.folder, found, self.old, self.new):
            return f"files that don't belong together: {sorted(found)}"
        return None

    def _is_companion(self, file: str, found: Contents) -> bool:
        """A file that explains another is gone while the other is replaced."""
        return file not in found and file.endswith((".pb.json", "receipt.html"))


def forked(write: Callable[[], object]) -> str:
    """How a process ended that wrote."""
    child = os.fork()
    if child == 0:
        code = 2
        try:
            write()
            code = 0
        except (SlipstreamError, StoreUnavailable, OSError):
            code = 1
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return KILLED if os.WTERMSIG(status) == signal.SIGKILL else CRASHED
    return {0: FINISHED, 1: REFUSED}.get(os.WEXITSTATUS(status), CRASHED)


def killed_at(number: int, write: Callable[[], object]) -> None:
    """Run a function, and die at the given call that touches a file, before it or after it."""
    count = 0

    def look(_: object, event: str, argument: object) -> None:
        nonlocal count
        is_call = event in ("c_call", "c_return")
        is_file = not isinstance(getattr(argument, "__self__", None), str | list | dict)
        if is_call and is_file and getattr(argument, "__name__", "") in TOUCHES_A_FILE:
            count += 1
            if count == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(look)
    write()
    sys.setprofile(None)


def kill(case: Case) -> Iterator[str | None]:
    number = 0
    while True:
        number += 1
        folder = case.fresh()
        ended = forked(lambda n=number, f=folder: killed_at(n, lambda: case.writer.write(f, NEW)))
        yield case.problem() if ended in (KILLED, FINISHED) else f"{ended} at call {number}"
        if ended == FINISHED:
            return


def full_disk(case: Case) -> Iterator[str | None]:
    largest = max(map(len, case.new.values()))
    for limit in sorted({0, 1, *range(0, largest + 1, max(1, largest // 20)), largest - 1}):
        folder = case.fresh()

        def write(limit: int = limit, folder: Path = folder) -> None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            case.writer.write(folder, NEW)

        ended = forked(write)
        is_small = limit < largest and ended == FINISHED and case.name != "a compiled program"
        if ended == CRASHED or is_small:
            yield f"{ended} with {limit} bytes left"
        else:
            yield case.problem()


def read_only(case: Case) -> Iterator[str | None]:
    folder = case.fresh()
    for part in (folder, *folder.rglob("*")):
        part.chmod(0o555 if part.is_dir() else 0o444)

    def write() -> None:
        if os.geteuid() == 0:  # root may write everything
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        case.writer.write(folder, NEW)

    ended = forked(write)
    yield case.problem() if ended == REFUSED else f"{ended}, not {REFUSED}"
    for part in (folder, *folder.rglob("*")):
        part.chmod(0o755 if part.is_dir() else 0o644)


def two_at_once(case: Case, times: int = 40) -> Iterator[str | None]:
    if case.name in ("flags lint --fix", "a phase of a run"):
        return  # the user writes the old file; a lock keeps the second run out
    folder = case.fresh()

    def write_all(version: str) -> None:
        """In a child, which never returns: the folder is its parent's to remove."""
        code = 1
        try:
            for _ in range(times):
                case.writer.write(folder, version)
            code = 0
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(code)

    children = []
    for version in (OLD, NEW):
        child = os.fork()
        if child == 0:
            write_all(version)
        children.append(child)
    problem = None
    while children:
        for file in contents_while_written(folder):
            name = str(file[0].relative_to(folder))
            if file[1] not in (case.old.get(name), case.new.get(name)):
                problem = f"{name} is neither the old one nor the new one"
        for child in list(children):
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                children.remove(child)
                problem = problem or (f"a writer ended with {status}" if status else None)
    yield problem


def contents_while_written(folder: Path) -> Iterator[tuple[Path, bytes]]:
    for file in list(folder.rglob("*")):
        try:
            if file.is_file() and not file.name.startswith("."):
                yield file, file.read_bytes()
        except FileNotFoundError:
            continue  # replaced, or removed for a moment


FAULTS = {
    "kill -9": kill,
    "full disk": full_disk,
    "read-only": read_only,
    "two at once": two_at_once,
}


def inject(names: list[str]) -> dict[str, dict[str, tuple[int, list[str]]]]:
    """For every writer and fault: how many cases, and what was wrong."""
    found: dict[str, dict[str, tuple[int, list[str]]]] = {}
    for name in names:
        # Everybody may enter it: one of the faults gives up root's rights.
        place = Path(tempfile.mkdtemp(prefix="slipstream-faults-"))
        place.chmod(0o755)
        try:
            case = Case(name, place)
            for fault, run in FAULTS.items():
                problems = list(run(case))
                wrong = [problem for problem in problems if problem]
                found.setdefault(name, {})[fault] = (len(problems), wrong)
        finally:
            shutil.rmtree(place, ignore_errors=True)
    return found


def main() -> int:
    found = inject([n for n in WRITERS if n.startswith(tuple(sys.argv[1:] or [""]))])
    print(f"{'':24}" + "".join(f"{fault:>13}" for fault in FAULTS))
    for name, faults in found.items():
        print(f"{name:24}" + "".join(f"{count:13}" for count, _ in faults.values()))
    wrong = [(n, f, w) for n, faults in found.items() for f, (_, w) in faults.items() if w]
    for name, fault, problems in wrong:
        print(f"{name}, {fault}: {len(problems)} wrong, the first: {problems[0]}")
    total = sum(count for faults in found.values() for count, _ in faults.values())
    print(f"{total:,} cases, {sum(len(w) for *_, w in wrong)} wrong")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
