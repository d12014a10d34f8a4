"""Which steps are predicted: those of a folder, or those given one by one.

A folder states its rows in `rows.json`, or in a table of its README.md that has the columns file,
machine and measured.  A file there may be named by a part of its name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from slipstream.errors import BadInput

MADE_UP = "made up"
"""the values of inputs, unless a row states others: XLA's `hlo_runner` makes them up"""
_COLUMNS = ("file", "machine", "measured")
_SECONDS = re.compile(r"\d+(\.\d+)?")


def stated(folder: Path, usual: Path) -> dict[str, Any]:
    """What a folder states; without a `rows.json`, the flags of then are those of `usual`."""
    if (folder / "rows.json").is_file():
        return _read(folder)
    readme = folder / "README.md"
    text = readme.read_text(encoding="utf-8") if readme.is_file() else ""
    steps = [_step(folder, *cells) for cells in _table(text)]
    if not steps:
        raise BadInput(
            f"{folder} states no steps; expected a rows.json like {usual / 'rows.json'}, a table "
            f"with the columns {', '.join(_COLUMNS)} in README.md, or --row FILE MACHINE SECONDS"
        )
    return {"then": _read(usual)["then"], "steps": steps}


def given(rows: Sequence[Sequence[str]], values: str, usual: Path) -> dict[str, Any]:
    """What `--row FILE MACHINE SECONDS` states."""
    steps = []
    for name, machine, seconds in rows:
        file = Path(name).absolute()
        if not file.is_file():
            raise BadInput(f"{name} is not a file; expected HLO before optimisation, .xz or not")
        steps.append({**_facts(file, machine, seconds), "values": values})
    return {"then": _read(usual)["then"], "steps": steps}


def _read(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "rows.json").read_text(encoding="utf-8"))
    return found


def _table(text: str) -> Iterator[tuple[str, str, str]]:
    """File, machine and measured time of each row of the tables that have these columns."""
    places: Mapping[str, int] = {}
    for line in text.splitlines():
        if not line.startswith("|"):
            places = {}
            continue
        cells = [cell.strip(" *`") for cell in line.strip().strip("|").split("|")]
        if not places:
            heads = [cell.split(" ")[0].casefold() for cell in cells]
            places = {head: heads.index(head) for head in _COLUMNS if head in heads}
            places = places if len(places) == len(_COLUMNS) else {}
        elif len(cells) > max(places.values()) and _SECONDS.match(cells[places["measured"]]):
            file, machine, measured = (cells[places[name]] for name in _COLUMNS)
            yield file, machine, measured


def _step(folder: Path, part: str, machine: str, measured: str) -> dict[str, Any]:
    found = [file for file in sorted(folder.iterdir()) if part in file.name]
    if len(found) != 1:
        names = ", ".join(file.name for file in found) or "none"
        raise BadInput(f"{part} of {folder / 'README.md'} is to be one file there, and is {names}")
    return {**_facts(found[0], machine, measured), "values": MADE_UP}


def _facts(file: Path, machine: str, measured: str) -> dict[str, Any]:
    number = _SECONDS.match(measured)
    if number is None or not float(number[0]):
        raise BadInput(f"{measured!r} of {file.name} is no time; expected seconds, such as 1.37")
    name = re.sub(r"^hlo_|\.hlo.*$", "", file.name)
    return {"name": name, "file": str(file), "machine": machine, "seconds": float(number[0])}
