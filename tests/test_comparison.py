"""The tables of docs/comparison.md: what is written of a cell, and which cells are refused."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

PATH = Path(__file__).resolve().parent.parent / "docs" / "comparison_tables.py"
SPEC = importlib.util.spec_from_file_location("comparison_tables", PATH)
assert SPEC is not None and SPEC.loader is not None
tables = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(tables)


def data(*cells: Any) -> dict[str, Any]:
    """One tool, one trial of it, and a table with one row."""
    return {
        "tools": [{"name": "tool", "version": "1.0", "link": "https://tool.example"}],
        "trials": {"run": {"tool": "tool", "run": "`tool x`", "scripts": ["benchmarks/view.py"]}},
        "tables": {"t": {"columns": ["a", "b"], "rows": [{"name": "tool", "cells": list(cells)}]}},
    }


TRIED = {"says": "yes", "tried": "run"}


def test_what_is_written() -> None:
    cells = [TRIED, {"says": "more", "cited": "README"}], {"says": "no", "not_tried": "no GPU"}
    assert tables.tables(data(*cells)) == {
        "comparison:tools": "| tool | version | what *tried* means |\n"
        "| --- | --- | --- |\n"
        "| [tool](https://tool.example) | 1.0 | `tool x` ([`view.py`](../benchmarks/view.py)) |",
        "comparison:t": "| | a | b |\n"
        "| --- | --- | --- |\n"
        "| tool | yes, tried; more, cited (README) | no, not tried: no GPU |",
    }


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ({"says": "yes"}, r"^t, tool, b: 'yes' needs one of tried, cited, not_tried"),
        ({"says": "yes", "cited": " "}, "'yes' needs one of"),
        ({"says": "yes", "cited": "README", "tried": "run"}, "'yes' needs one of"),
        ({"says": "yes", "seen": "run"}, "'yes' needs one of"),
        ({"says": "?", "cited": "README"}, "b: the cell says nothing; .* is `not_tried`"),
        ({"says": "–", "tried": "run"}, "the cell says nothing"),
        ({"says": "yes", "tried": "walk"}, "no trial is called 'walk'; known: run"),
        ({"says": "a|b", "cited": "README"}, "can't be a cell"),
    ],
)
def test_cells_that_are_refused(cell: dict[str, str], message: str) -> None:
    with pytest.raises(tables.DataError, match=message):
        tables.tables(data(TRIED, cell))


def test_other_mistakes() -> None:
    with pytest.raises(tables.DataError, match="^t, tool: 1 cells for 2 columns"):
        tables.tables(data(TRIED))
    cited = {"says": "yes", "cited": "README"}
    with pytest.raises(tables.DataError, match="no cell is by the trial run"):
        tables.tables(data(cited, cited))
    gone = data(TRIED, cited)
    gone["trials"]["run"]["scripts"] = ["benchmarks/gone.py"]
    with pytest.raises(tables.DataError, match=r"trial run: there is no benchmarks/gone\.py"):
        tables.tables(gone)
    untried = data(TRIED, cited)
    untried["tools"].append({"name": "other", "version": "2"})
    with pytest.raises(tables.DataError, match="^other: neither a trial nor a note"):
        tables.tables(untried)
