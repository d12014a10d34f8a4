"""The margin of a simulated ranking is what docs/accuracy.md measured."""

from __future__ import annotations

import re
from pathlib import Path

from slipstream.tune.report.report import MEASURED_ERROR, MODELLED_ERROR

PAGE = (Path(__file__).parents[3] / "docs" / "accuracy.md").read_text()


def test_error_margins_match_the_accuracy_page() -> None:
    table = PAGE.partition("### With no profile at all")[2]
    errors = re.findall(r"\| [\w.]+ \| [\d.]+ \| [\d.]+ \| ([+-][\d.]+)% \|", table)
    assert len(errors) > 20
    mean = sum(abs(float(error)) for error in errors) / len(errors)
    assert round(mean / 100, 3) == MODELLED_ERROR
    stated = re.search(r"mean error, costs of another setting \(goal 3%\): \*\*([\d.]+)%", PAGE)
    assert stated is not None and round(float(stated[1]) / 100, 4) == MEASURED_ERROR
