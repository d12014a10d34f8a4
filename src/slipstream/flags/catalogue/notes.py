"""What the flags that matter do, and when they help or hurt; the data is in notes.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

DATA = Path(__file__).with_name("notes.json")


@dataclass(frozen=True)
class Note:
    """What a flag is for, in sentences, with their sources."""

    what: str
    helps: str | None
    hurts: str | None
    sources: tuple[str, ...]
    is_judged: bool = False
    """whether helps and hurts are our judgement: the sources only say what the flag does"""


@cache
def notes() -> Mapping[str, Note]:
    """All notes, by the flag's name."""
    data = json.loads(DATA.read_text(encoding="utf-8"))
    return {
        name: Note(
            entry["what"],
            entry.get("helps"),
            entry.get("hurts"),
            tuple(data["sources"][key] for key in entry["sources"]),
            entry.get("is_judged", False),
        )
        for name, entry in data["flags"].items()
    }
