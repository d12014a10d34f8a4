"""Bars and curves: shapes are as large as what they stand for."""

import re

from hypothesis import given
from hypothesis import strategies as st

from slipstream.outputs.formatting import name_and_size
from slipstream.outputs.html.charts import (
    BarPart,
    ChartCurve,
    Lane,
    bar,
    columns,
    curves,
    lanes,
    legend,
    share_bar,
    thinned,
)  # fmt: skip

PARTS = [BarPart("compute", 30, "compute", "30 ms"), BarPart("idle", 10, "idle", "10 ms")]


def rects(text: str) -> list[tuple[float, float]]:
    """(start, width) of each rectangle."""
    found = re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', text)
    return [(float(x), float(wide)) for x, wide in found]


def test_a_bar():
    text = bar(PARTS, "The step: 40 ms")
    assert rects(text) == [(0, 750), (750, 250)]
    assert 'role="img" aria-label="The step: 40 ms"' in text
    assert "<title>compute 30 ms</title>" in text
    assert rects(bar(PARTS, "half", total=80)) == [(0, 375), (375, 125)]
    assert rects(bar([], "nothing")) == []


def test_a_legend_has_shares():
    text = legend(PARTS, 40)
    assert re.findall(r"<b>(.*?)</b><span>(.*?)</span>", text) == [
        ("30 ms", "75%"),
        ("10 ms", "25%"),
    ]


def test_a_share_is_never_longer_than_its_bar():
    assert rects(share_bar(1.7, "170%"))[1] == (0, 1000)
    assert rects(share_bar(0.25, "25%"))[1] == (0, 250)


def test_a_curve():
    text = curves([ChartCurve([0, 2, 2, 1])], "rate", 4, "4 GB/s", ("0", "1 s"), limit=3)
    assert 'd="M0 100V100H250V50H750V75H1000V100Z"' in text
    assert 'd="M0 25.00H1000" class="limit"' in text
    assert "4 GB/s" in text and "1 s" in text


def test_steps_as_columns():
    text = columns([PARTS, PARTS], "two steps", 80)
    found = re.findall(r'y="([\d.]+)" width="[\d.]+" height="([\d.]+)"', text)
    assert found == [("62.5", "37.5"), ("50", "12.5")] * 2


@given(st.lists(st.floats(0, 1e9), max_size=50), st.integers(1, 10))
def test_no_peak_is_lost(values, most):
    found = thinned(values, most)
    assert len(found) <= max(most, 0) or len(values) <= most
    assert max(found, default=0) == max(values, default=0)


def test_a_lane_names_what_it_shows_and_how_much():
    assert lanes([], "empty", 10, ("0", "10 ms")) == '<div class="lanes"></div>'
    name, size = name_and_size("all-gather w1, w2 29.5 MB")
    text = lanes([Lane(name, [(2, 2.001, "copy", "it")], size)], "where", 10, ("0", "10 ms"))
    assert "<span>all-gather w1, w2</span><b>29.5 MB</b>" in text
    assert 'aria-label="where: all-gather w1, w2 29.5 MB"' in text
    assert rects(text) == [(200, 2)]
    assert '<div class="ends"><span>0</span><span>10 ms</span></div>' in text
    assert name_and_size("all-reduce") == ("all-reduce", "")
    assert name_and_size("4 B") == ("4 B", "")
