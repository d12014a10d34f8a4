"""The tables of docs/comparison.md, from docs/comparison.toml, for generate.py.

docs/comparison.md    comparison:tools      the tools, their versions, and what was run
                      comparison:NAME       a table whose cells say how each is known

Every cell needs a basis: `DataError` for one without.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "docs" / "comparison.toml"
PAGE = "comparison.md"
BASES = ("tried", "cited", "not_tried")
NOTHING = ("", "?", "–", "-")
"""what says nothing of a tool"""


class DataError(Exception):
    """Something in the data file that a person has to correct."""


def pages() -> dict[str, dict[str, str]]:
    """The page with these tables: {page: {mark: text}}."""
    return {PAGE: tables(tomllib.loads(DATA.read_text(encoding="utf-8")))}


def tables(data: Mapping[str, Any]) -> dict[str, str]:
    """Each table as Markdown, by its mark."""
    trials = data["trials"]
    unused = set(trials)
    found = {"comparison:tools": tools_table(data["tools"], trials)}
    for name, table in data["tables"].items():
        head = ["", *table["columns"]]
        lines = [line(head), line(["---"] * len(head))]
        for row in table["rows"]:
            where = f"{name}, {row['name']}"
            if len(row["cells"]) != len(table["columns"]):
                raise DataError(
                    f"{where}: {len(row['cells'])} cells for {len(table['columns'])} columns"
                )
            cells = []
            for column, cell in zip(table["columns"], row["cells"], strict=True):
                claims = cell if isinstance(cell, list) else [cell]
                unused -= {claim.get("tried") for claim in claims}
                cells.append(cell_text(claims, trials, f"{where}, {column}"))
            lines.append(line([row["name"], *cells]))
        found[f"comparison:{name}"] = "\n".join(lines)
    if unused:
        raise DataError(f"no cell is by the trial {', '.join(sorted(unused))}")
    return found


def cell_text(claims: Sequence[Mapping[str, str]], trials: Mapping[str, Any], where: str) -> str:
    """`yes, tried; for JAX a notebook, cited (README)`."""
    return "; ".join(claim_text(claim, trials, where) for claim in claims)


def claim_text(claim: Mapping[str, str], trials: Mapping[str, Any], where: str) -> str:
    says = claim.get("says", "").strip()
    if says in NOTHING:
        raise DataError(f"{where}: the cell says nothing; what is not known is `not_tried`")
    given = [name for name in BASES if claim.get(name, "").strip()]
    if len(given) != 1 or set(claim) - {"says", *BASES}:
        raise DataError(f"{where}: {says!r} needs one of {', '.join(BASES)}, and nothing else")
    basis = claim[given[0]]
    if given == ["tried"] and basis not in trials:
        raise DataError(f"{where}: no trial is called {basis!r}; known: {', '.join(trials)}")
    text = {"tried": "tried", "cited": f"cited ({basis})", "not_tried": f"not tried: {basis}"}
    return f"{says}, {text[given[0]]}"


def tools_table(tools: Sequence[Mapping[str, str]], trials: Mapping[str, Any]) -> str:
    """Each tool with its version, what was run of it, and by which scripts."""
    lines = [line(["tool", "version", "what *tried* means"]), line(["---"] * 3)]
    known = {tool["name"] for tool in tools}
    for name, trial in trials.items():
        if trial["tool"] not in known:
            raise DataError(f"trial {name}: no tool is called {trial['tool']!r}")
        for script in trial.get("scripts", ()):
            if not (ROOT / script).is_file():
                raise DataError(f"trial {name}: there is no {script}")
    for tool in tools:
        name = tool["name"]
        shown = f"[{name}]({tool['link']})" if "link" in tool else name
        run = [_trial(trial) for trial in trials.values() if trial["tool"] == name]
        if not run and "note" not in tool:
            raise DataError(f"{name}: neither a trial nor a note that says why there is none")
        lines.append(line([shown, tool["version"], "; ".join([*run, *_note(tool)])]))
    return "\n".join(lines)


def _trial(trial: Mapping[str, Any]) -> str:
    names = [f"[`{Path(one).name}`](../{one})" for one in trial.get("scripts", ())]
    return trial["run"] + (f" ({', '.join(names)})" if names else "")


def _note(tool: Mapping[str, str]) -> Iterator[str]:
    if "note" in tool:
        yield tool["note"]


def line(cells: Sequence[str]) -> str:
    """A line of a table."""
    for cell in cells:
        if "|" in cell or "\n" in cell:
            raise DataError(f"{cell!r} can't be a cell of a table")
    # An empty cell has no text to keep its bars apart.
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"
