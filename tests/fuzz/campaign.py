"""Runs readers on damaged inputs and reports what is not a `SlipstreamError`.

python tests/fuzz/campaign.py [--executions N] [--seed N] [--keep FOLDER] [READER…]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]

from fuzz.readers import READERS, Reader  # noqa: E402
from slipstream.errors import SlipstreamError  # noqa: E402


@dataclass(frozen=True)
class Defect:
    """An input on which a reader failed with something else than a SlipstreamError."""

    reader: str
    seed: int
    error: BaseException
    data: bytes

    @property
    def place(self) -> str:
        """The innermost line of ours, and the kind of error: equal for equal defects."""
        frames = traceback.extract_tb(self.error.__traceback__)
        ours = [f for f in frames if "slipstream" in f.filename] or frames
        at = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "?"
        return f"{type(self.error).__name__} at {at}"


def damaged(reader: Reader, seed: int) -> bytes:
    """The damaged input of a seed."""
    chance = Random(f"{reader.name} {seed}")
    return reader.damage(chance.choice(reader.inputs), chance)


def defects(reader: Reader, seeds: range) -> Iterator[Defect]:
    """Read one damaged input for each seed."""
    for seed in seeds:
        data = damaged(reader, seed)
        with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
            path = Path(folder) / reader.file
            path.write_bytes(data)
            try:
                reader.read(path)
            except SlipstreamError:
                pass
            except Exception as error:
                yield Defect(reader.name, seed, error, data)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("readers", nargs="*", help="names of readers; all by default")
    parser.add_argument("--executions", type=int, default=1000, help="for each reader")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--keep", type=Path, help="folder for inputs that show defects")
    given = parser.parse_args()
    failed = False
    for reader in READERS:
        if given.readers and reader.name not in given.readers:
            continue
        seen: Counter[str] = Counter()
        for defect in defects(reader, range(given.seed, given.seed + given.executions)):
            seen[defect.place] += 1
            if seen[defect.place] == 1:
                print(f"{reader.name}, seed {defect.seed}: {defect.place}: {defect.error!s:.150}")
                if given.keep:
                    given.keep.mkdir(parents=True, exist_ok=True)
                    (given.keep / f"{defect.seed}-{reader.file}").write_bytes(defect.data)
        failed |= bool(seen)
        print(f"{reader.name}: {given.executions} executions, {len(seen)} kinds of defects")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
