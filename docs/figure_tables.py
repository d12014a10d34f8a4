"""The figures of README.md and docs/benchmarks.md, from docs/figures.toml, for generated_tables.py.

A row without a basis, or with a number that is not on the page it names, is a `DataError`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from comparison_tables import DataError, line

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "docs" / "figures.toml"
KEYS = {"what", "slipstream", "alternative", "script", "page", "as_of"}
LINK = re.compile(r"\]\(([^)]*)\)")
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


def rows() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tomllib.loads(DATA.read_text(encoding="utf-8"))["figures"]
    return found


def readme(rows: Sequence[Mapping[str, str]]) -> str:
    """What each figure is about, ours, and the alternative's."""
    lines = ["| what | Slipstream | alternative |", "| --- | --- | --- |"]
    for row in rows:
        cells = (row["what"], row["slipstream"], row.get("alternative", ""))
        lines.append(line([LINK.sub(r"](docs/\1)", cell) for cell in cells]))
    return "\n".join(lines)


def benchmarks(rows: Sequence[Mapping[str, str]]) -> str:
    """The same, with where each figure comes from; DataError for one that comes from nowhere."""
    lines = ["| what | Slipstream | alternative | from |", "| --- | --- | --- | --- |"]
    for row in rows:
        check(row)
        script = row.get("script")
        origin = [f"[`{Path(script).name}`](../{script})"] if script else []
        page = row.get("page")
        origin.append(f"[{page}]({page})" if page else f"as of {row['as_of']}")
        cells = (row["what"], row["slipstream"], row.get("alternative", ""), ", ".join(origin))
        lines.append(line(cells))
    return "\n".join(lines)


def check(row: Mapping[str, str]) -> None:
    """DataError unless a row has one basis, and each of its numbers is on the page it names."""
    what = row["what"]
    if ("page" in row) == ("as_of" in row) or set(row) - KEYS:
        raise DataError(f"{what}: needs a page with its figures, or the day they are of")
    script = row.get("script")
    if script is not None and not (ROOT / script).is_file():
        raise DataError(f"{what}: there is no {script}")
    if "page" not in row:
        return
    shown = LINK.sub("]", f"{row['slipstream']} {row.get('alternative', '')}")
    there = set(NUMBER.findall((ROOT / "docs" / row["page"]).read_text(encoding="utf-8")))
    if missing := sorted(set(NUMBER.findall(shown)) - there):
        raise DataError(f"{what}: docs/{row['page']} doesn't have {', '.join(missing)}")
