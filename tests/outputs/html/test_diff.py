"""Two profiles compared on a page: one unit for a table, titles and sentences that read well."""

import re

import pytest

from builders import profile
from slipstream.analyses.diff.diff import diff
from slipstream.outputs.html.diff import diff_page
from slipstream.outputs.html.sections.diff import sum_up
from slipstream.outputs.html.tables import TimeColumn


def steps(*ops: tuple[str, float], count: int = 6):
    """A profile of equal steps of these kernels; each is a microsecond longer every other time."""
    built = profile()
    for number in range(count):
        built.execution_of()
        for name, us in ops:
            built.kernel(name, us + number % 2)
    return built.build()


BEFORE = (("dot.1", 20_000.0), ("dot.2", 18_000.0), ("dot.3", 3_000.0))
AFTER = (("dot.1", 19_443.0), ("dot.2", 18_128.0), ("dot.3", 3_000.0))


def cells(text: str, table: str) -> list[list[str]]:
    """The texts of a table, row by row, heads first."""
    (body,) = re.findall(rf'<table[^>]*aria-label="{table}".*?</table>', text, re.DOTALL)
    rows = re.findall(r"<tr.*?</tr>", body, re.DOTALL)
    parts = [re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL) for row in rows]
    return [[re.sub(r"<[^>]+>", "", cell) for cell in row] for row in parts]


def test_times_and_changes_of_a_table_have_one_unit():
    sides = (steps(*BEFORE), steps(*AFTER))
    text = diff_page(diff(*sides), sides, ("before.pb", "after.pb"))
    heads, step, *_ = cells(text, "Parts of the step")
    assert heads == ["Part of the step", "Before, ms", "After, ms", "Change, ms"]
    assert step == ["step", "41.00", "40.57", "−0.43"]
    heads, *rows = cells(text, "Ops that changed")
    assert heads[3:6] == ["Before, ms", "After, ms", "Net change, ms"]
    assert [row[3:6] for row in rows] == [["41.00", "40.57", "−0.43"]]


def test_digits_show_the_smallest_change():
    assert TimeColumn([38_000.0], [128.0]).text(128.0) == "0.13"
    assert TimeColumn([38_000.0], [12.0]).text(12.0) == "0.012"
    assert TimeColumn([138_000.0], [1.0, 0.0]).text(1.0) == "0.001"
    assert TimeColumn([138_000.0], [9_000.0]).text(9_000.0) == "9.0"
    assert TimeColumn([138_000.0]).cell(None).shown == "–"


def test_what_changed_is_a_sentence():
    one = sum_up(diff(steps(*BEFORE), steps(AFTER[0], *BEFORE[1:])))
    assert one.startswith("The step takes 40.4 ms instead of 41 ms: compute −557 µs. ")
    assert one.endswith(". 1 op changed: x @ y −557 µs.")
    two = sum_up(diff(steps(*BEFORE), steps(*AFTER)))
    same = sum_up(diff(steps(*BEFORE), steps(*BEFORE)))
    assert same == "The step takes 41 ms before and after."
    assert two.endswith(". 2 ops changed: x @ y −557 µs, x @ y +128 µs.")


@pytest.mark.parametrize(
    ("after", "count", "title"),
    [
        (AFTER, 6, "faster"),
        (BEFORE, 6, "no difference"),
        (AFTER, 1, "no verdict"),
    ],
)
def test_the_title_is_a_verdict_in_words(after, count, title):
    sides = (steps(*BEFORE), steps(*after, count=count))
    found = diff(*sides)
    text = diff_page(found, sides, ("before.pb", "after.pb"))
    (heading,) = re.findall(r"<h1>(.*?)</h1>", text)
    assert heading.endswith(f": {title}")
    assert f'<b class="down">{title.capitalize()}' in text or f"<b>{title.capitalize()}" in text
