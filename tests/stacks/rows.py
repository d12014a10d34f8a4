"""The table of docs/stacks.md, from what the tests saw.

    python tests/stacks/rows.py FOLDER          print it
    python tests/stacks/rows.py FOLDER --write  put it into the page, between its marks

With STACKS_ROWS=FOLDER every test leaves its row there; `make test-stacks` does all of this.
"""

import json
import os
import platform
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "tests"))

from stacks.both_ways import BothWays  # noqa: E402
from stacks.table import SCRIPTS, STACKS, Stack, installed  # noqa: E402

ROWS = os.environ.get("STACKS_ROWS")
PAGE = ROOT / "docs" / "stacks.md"
MARKS = ("<!-- table:begin -->\n", "<!-- table:end -->\n")
COLUMNS = (
    "stack",
    "script",
    "with",
    "measured function",
    "its share",
    "verdict",
    "losses",
    "exit code",
    "files",
)


def keep_row(stack: Stack, both: BothWays) -> None:
    row = dict(zip(COLUMNS, cells(stack, both), strict=True))
    place = Path(ROWS or ".")
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{STACKS.index(stack):02}.json").write_text(json.dumps(row))


def cells(stack: Stack, both: BothWays) -> list[str]:
    bare, ours = both.bare, both.ours
    return [
        stack.name,
        script(stack),
        versions(stack),
        f"`{both.function}`",
        share(both.receipt),
        both.receipt["verdict"],
        f"{len(bare.losses)}, equal" if ours.losses == bare.losses else "DIFFERENT",
        f"{ours.code}, equal" if ours.code == bare.code else f"{bare.code} → {ours.code}",
        f"{len(bare.files)}, equal" if ours.files == bare.files else "DIFFERENT",
    ]


def script(stack: Stack) -> str:
    first, _, rest = stack.job.partition(" ")
    if first == "-m":
        return f"`python -m {rest.split()[0]}`"
    path = (SCRIPTS / first).resolve().relative_to(ROOT)
    return f"[`{path.name}`](../{path})"


def versions(stack: Stack) -> str:
    own = [f"{package} {installed(package)}" for package in stack.packages[:1]]
    python = ".".join(platform.python_version_tuple()[:2])
    return ", ".join([*own, f"jax {installed('jax')}", f"Python {python}"])


def share(receipt: dict) -> str:
    found = (receipt.get("program") or {}).get("share")
    return "" if found is None else f"{found:.0%}"


def table(folder: Path) -> str:
    rows = [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]
    lines = [COLUMNS, ["---"] * len(COLUMNS), *([row[c] for c in COLUMNS] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def write(text: str) -> None:
    begin, end = map(re.escape, MARKS)
    pattern = re.compile(f"({begin}).*?({end})", re.DOTALL)
    PAGE.write_text(pattern.sub(lambda found: found[1] + text + found[2], PAGE.read_text()))


if __name__ == "__main__":
    shown = table(Path(sys.argv[1]))
    print(shown, end="")
    if "--write" in sys.argv[2:]:
        write(shown)
