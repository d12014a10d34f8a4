"""The margin of a simulated ranking is what docs/accuracy.md measured; notes of a study."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from slipstream.errors import BadInput
from slipstream.results.tuning import NoiseFloor
from slipstream.tune.measure import finals
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


@pytest.mark.parametrize(
    "note",
    ["", "3", "[]", '{"low": 1}', '{"change": "x"}', "[" * 100_000],
    ids=range(6),
)
def test_damaged_notes_of_a_study_are_our_error(note: str) -> None:
    with pytest.raises(BadInput, match="noise floor is damaged"):
        NoiseFloor.from_note(note)
    if note:
        with pytest.raises(BadInput, match="'finals' is damaged"):
            finals.from_notes({finals.NOTE: note.replace("[]", '{"1": 3}')})


def test_a_noise_floor_reads_back_as_written() -> None:
    floor = NoiseFloor(0.01, -0.02, 0.03)
    assert NoiseFloor.from_note(floor.to_note()) == floor
