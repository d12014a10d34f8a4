"""Tables of docs/comparison.md and of figures: what is written of a cell, and what is refused."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

DOCS = Path(__file__).resolve().parent.parent / "docs"


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(DOCS))
    return importlib.import_module("comparison_tables")


@pytest.fixture
def figures(tables: ModuleType) -> ModuleType:
    return importlib.import_module("figure_tables")


def data(*cells: Any) -> dict[str, Any]:
    """One tool, one trial of it, and a table with one row."""
    return {
        "tools": [{"name": "tool", "version": "1.0", "link": "https://tool.example"}],
        "trials": {"run": {"tool": "tool", "run": "`tool x`", "scripts": ["benchmarks/view.py"]}},
        "tables": {"t": {"columns": ["a", "b"], "rows": [{"name": "tool", "cells": list(cells)}]}},
    }


TRIED = {"says": "yes", "tried": "run"}


def test_what_is_written(tables: ModuleType) -> None:
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
def test_cells_that_are_refused(tables: ModuleType, cell: dict[str, str], message: str) -> None:
    with pytest.raises(tables.DataError, match=message):
        tables.tables(data(TRIED, cell))


def test_other_mistakes(tables: ModuleType) -> None:
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


FIGURE = {
    "what": "plans",
    "slipstream": "5.1 min ([how](plan.md#how-long-it-takes))",
    "script": "benchmarks/plan.py",
    "page": "plan.md",
}


def test_figures(figures: ModuleType) -> None:
    old = {"what": "old", "slipstream": "1 s", "alternative": "2 s", "as_of": "2026-11-15"}
    assert figures.readme([FIGURE, old]).splitlines()[2:] == [
        "| plans | 5.1 min ([how](docs/plan.md#how-long-it-takes)) | |",
        "| old | 1 s | 2 s |",
    ]
    assert figures.benchmarks([FIGURE, old]).splitlines()[2:] == [
        "| plans | 5.1 min ([how](plan.md#how-long-it-takes)) | "
        "| [`plan.py`](../benchmarks/plan.py), [plan.md](plan.md) |",
        "| old | 1 s | 2 s | as of 2026-11-15 |",
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"slipstream": "5.11111 min"}, r"^plans: docs/plan\.md doesn't have 5\.11111$"),
        ({"as_of": "2026-11-15"}, "^plans: needs a page with its figures, or the day"),
        ({"script": "benchmarks/gone.py"}, r"^plans: there is no benchmarks/gone\.py"),
        ({"seen": "once"}, "needs a page"),
    ],
)
def test_figures_that_are_refused(
    figures: ModuleType, tables: ModuleType, change: dict[str, str], message: str
) -> None:
    with pytest.raises(tables.DataError, match=message):
        figures.benchmarks([FIGURE | change])
