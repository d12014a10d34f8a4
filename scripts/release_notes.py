"""Print the notes of a release: its section of CHANGELOG.md.

python scripts/release_notes.py 0.1.0 > notes.md
python scripts/release_notes.py Unreleased
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

CHANGELOG = Path(__file__).resolve().parent.parent / "CHANGELOG.md"


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    sections = sections_of(CHANGELOG.read_text(encoding="utf-8"))
    if arguments[0] not in sections:
        known = ", ".join(sections)
        print(f"error: CHANGELOG.md has no {arguments[0]}; it has {known}", file=sys.stderr)
        return 2
    print(sections[arguments[0]])
    return 0


def sections_of(text: str) -> dict[str, str]:
    """`## 0.1.0 (2026-11-18)` and what is below it, under `0.1.0`."""
    parts = re.split(r"^## (\S+).*\n", text, flags=re.MULTILINE)[1:]
    return {name: body.strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
