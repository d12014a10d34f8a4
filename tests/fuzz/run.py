"""Runs readers and native functions on damaged inputs, with every native array against guard pages.

    python tests/fuzz/run.py [--executions N] [--seed N] [--processes N] [TARGET …]

Each target runs half of its executions with arrays that end at a guard page, and half with arrays
that begin at one (see `guard_pages`). Children do the work: a crash or a hang of one is reported
with the input's seed, and the next child goes on behind it. To repeat a single input:

    python tests/fuzz/run.py --repeat SEED --side right TARGET
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import mmap
import os
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]

from fuzz.guard_pages import LEFT, RIGHT, guarded  # noqa: E402
from fuzz.targets import TARGETS  # noqa: E402

HANG_S = 300
"""an input that takes longer hangs; other work may leave a child little time"""
MOST_MEMORY = 8 << 30
"""of a child: an input that takes more is a defect"""
_PROGRESS = struct.Struct("<q")
"""the seed that a child is at"""


@dataclass(frozen=True)
class Share:
    """Executions of one target with arrays on one side of a guard page."""

    target: str
    side: str
    first: int
    count: int


@dataclass
class Outcome:
    """What executions of a target found."""

    target: str
    executions: int = 0
    defects: dict[str, int] = field(default_factory=dict)
    """the first seed that showed each defect"""
    called: set[str] = field(default_factory=set)
    """native functions"""

    def add(self, other: Outcome) -> None:
        self.executions += other.executions
        self.called |= other.called
        for defect, seed in other.defects.items():
            self.defects.setdefault(defect, seed)


def execute(share: Share, note: Callable[[int], object]) -> Outcome:
    """Run a share in this process; `note` is told of each seed before it is tried."""
    target, outcome = TARGETS[share.target], Outcome(share.target)
    with guarded(share.side) as guards:
        target.prepare(guards)
        for seed in range(share.first, share.first + share.count):
            note(seed)
            try:
                target.run(Random(f"{share.target} {seed}"))
            except target.expected:
                pass
            except Exception as error:
                outcome.defects.setdefault(_described(error), seed)
        outcome.executions, outcome.called = share.count, guards.called
    return outcome


def _described(error: Exception) -> str:
    """The kind of an error and the last line of ours: equal for equal defects."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if "slipstream" in f.filename] or frames
    return f"{type(error).__name__} in {Path(ours[-1].filename).name}:{ours[-1].lineno}"


def child(arguments: str) -> None:
    """What a child does: some shares, with a line of JSON for each."""
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    words = json.loads(arguments)
    with open(words["progress"], "r+b") as file:
        progress = mmap.mmap(file.fileno(), _PROGRESS.size)
    for share in words["shares"]:
        found = execute(Share(**share), lambda seed: _PROGRESS.pack_into(progress, 0, seed))
        print(json.dumps({**vars(found), "called": sorted(found.called)}), flush=True)


def run_shares(shares: list[Share]) -> list[Outcome]:
    """Run shares in a child; if an input kills it, another child goes on behind that input."""
    outcomes = []
    while shares:
        ended, lines, errors, seed = _run_child(shares)
        for words in map(json.loads, lines):
            outcomes.append(Outcome(**{**words, "called": set(words["called"])}))
        shares = shares[len(lines) :]
        if ended:
            share = shares[0]
            died = Outcome(share.target, seed + 1 - share.first, {_death(ended, errors): seed})
            outcomes.append(died)
            rest = share.count - died.executions
            shares = [Share(share.target, share.side, seed + 1, rest)][: rest > 0] + shares[1:]
    return outcomes


def _run_child(shares: list[Share]) -> tuple[int, list[str], str, int]:
    """(how it ended, its lines, its errors, the seed that it was at)."""
    with (
        tempfile.NamedTemporaryFile() as progress,
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as err,
    ):
        progress.write(_PROGRESS.pack(shares[0].first))
        progress.flush()
        words = {"shares": [vars(share) for share in shares], "progress": progress.name}
        command = [sys.executable, __file__, "--child", json.dumps(words)]
        process = subprocess.Popen(command, stdout=out, stderr=err)
        seen, since = b"", time.monotonic()
        while process.poll() is None:
            time.sleep(0.05)
            now = Path(progress.name).read_bytes()
            if now != seen:
                seen, since = now, time.monotonic()
            elif time.monotonic() - since > HANG_S:
                process.kill()
        out.seek(0), err.seek(0)
        (seed,) = _PROGRESS.unpack(Path(progress.name).read_bytes())
        return process.returncode, out.read().splitlines(), err.read(), seed


def _death(ended: int, errors: str) -> str:
    """How a child died, and which line of ours had called native code."""
    lines = [line.strip() for line in errors.splitlines() if "slipstream" in line]
    how = signal.Signals(-ended).name if ended < 0 else f"exit code {ended}"
    how = f"hang of more than {HANG_S} s" if ended == -signal.SIGKILL else how
    said = lines[:1] or errors.strip().splitlines()[-1:]
    return " ".join((how, *said))


def batches(names: Sequence[str], executions: int, seed: int, most: int) -> Iterator[list[Share]]:
    """All targets by weight, a side at a time, `most` executions in a batch."""
    total = sum(TARGETS[name].weight for name in names)
    done = 0
    while done < executions:
        batch = min(most, executions - done)
        for number, side in enumerate((RIGHT, LEFT)):
            shares = []
            for name in names:
                weight = TARGETS[name].weight / total
                first, last = (seed + round(weight * (done + part)) for part in (0, batch))
                middle = (first + last) // 2
                first, last = ((first, middle), (middle, last))[number]
                shares.append(Share(name, side, first, last - first))
            yield [share for share in shares if share.count]
        done += batch


def campaign(
    names: Sequence[str], executions: int, seed: int = 0, processes: int = 2
) -> dict[str, Outcome]:
    """Run targets, in turns, so that a run that is stopped has done something of each."""
    found = {name: Outcome(name) for name in names}
    begun = time.monotonic()
    with ThreadPoolExecutor(processes) as pool:
        for outcomes in pool.map(run_shares, batches(names, executions, seed, 200_000)):
            for outcome in outcomes:
                found[outcome.target].add(outcome)
            if os.environ.get("FUZZ_PROGRESS"):
                print(f"after {time.monotonic() - begun:.0f} s", table(found), sep="\n", flush=True)
    return found


def table(found: dict[str, Outcome]) -> str:
    width = max(map(len, found))
    rows = [f"{'target':{width}}  executions  defects"]
    for name, outcome in found.items():
        rows.append(f"{name:{width}}  {outcome.executions:>10,}  {len(outcome.defects):>7}")
        rows += [f"    {defect}: seed {seed}" for defect, seed in outcome.defects.items()]
    total = sum(outcome.executions for outcome in found.values())
    return "\n".join((*rows, f"{'total':{width}}  {total:>10,}"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "targets", nargs="*", metavar="TARGET", help="names or their beginnings; all by default"
    )
    parser.add_argument("--executions", type=int, default=100_000, help="over all targets")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--repeat", type=int, metavar="SEED", help="run one input, in this process")
    parser.add_argument("--side", choices=(RIGHT, LEFT), default=RIGHT)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(given.child)
        return 0
    names = [name for name in TARGETS if name.startswith(tuple(given.targets or [""]))]
    if not names:
        parser.error(f"no such target; there are: {', '.join(TARGETS)}")
    if given.repeat is not None:
        target = TARGETS[names[0]]
        with guarded(given.side) as guards:
            target.prepare(guards)
            print(target.run(Random(f"{names[0]} {given.repeat}")))
        return 0
    found = campaign(names, given.executions, given.seed, given.processes)
    print(table(found))
    return int(any(outcome.defects for outcome in found.values()))


if __name__ == "__main__":
    sys.exit(main())
