"""Unrolled layers in the report, in real Chromium: one box, one row, and each of them on demand."""

from __future__ import annotations

from pathlib import Path

import pytest

from slipstream.diagnosis.diagnose import diagnose
from slipstream.outputs.formatting import time_text
from slipstream.outputs.html.report import report_page
from slipstream.outputs.html.report_data import results
from slipstream.results.diagnosis import Exhibit
from slipstream.sources.load import load

DATA = Path(__file__).parents[1] / "data"
A4_PX = 688
"""what a browser has to print on between margins of 14 mm"""


@pytest.fixture(scope="module")
def found():
    """A convolutional network of six equal blocks, `Block_0` to `Block_5` in its scopes."""
    read = load(DATA / "convolution_graphs.xplane.pb.gz")
    return results(read, "blocks", diagnosis=diagnose(read))


@pytest.fixture(scope="module")
def address(found, tmp_path_factory):
    path = tmp_path_factory.mktemp("layers") / "report.html"
    path.write_text(report_page(found), encoding="utf-8")
    return path.as_uri()


def opened(page, address: str):
    page.goto(address)
    page.locator("html[data-ready]").wait_for()
    return page


def test_layers_are_one_box_of_the_map_and_each_on_demand(page, address, found):
    opened(page, address)
    page.locator("#ops [data-by=scope]").click()
    boxes = page.locator("#map button")
    named = " ".join(boxes.all_inner_texts())
    count = max(len(group.instructions) for group in found.ops.groups)
    assert "*" in named and f"{count} × " in page.evaluate(
        "SlipstreamReport.opsTable.groups.map((row) => `${(row.op.equals || []).length} × `).join()"
    )
    # A box of equal ops leads to their one row.
    page.locator("#map .cell", has_text=" × ").first.click()
    assert "in all" in page.locator("#ops-table tr.about").first.inner_text()
    page.get_by_role("button", name="Each op").click()
    assert "*" not in " ".join(boxes.all_inner_texts())
    assert page.locator("#map .cell", has_text=" × ").count() == 0


def test_a_row_of_equal_ops_names_their_scope_without_a_layer(page, address, found):
    opened(page, address)
    same = next(g for g in found.ops.groups if len(g.instructions) > 1 and "*" in g.scope)
    page.locator("#ops-search").fill(same.instruction)
    row = page.locator("#ops-table tbody tr", has_text=f"{same.instruction} and ").first
    assert row.locator("td.scope span").get_attribute("title") == same.scope


def test_roofline_collectives_and_findings_count_equal_ops_once(page, address, found):
    opened(page, address)
    lost = [row for row in found.roofline.groups if row.best_us is not None]
    several = next(row for row in lost if len(row.instructions) > 1)
    page.locator("#roofline .showall").click()
    text = f"{several.instruction} and {len(several.instructions) - 1} like it"
    assert page.locator("#roofline tbody tr", has_text=text).count() == 1
    shown = [e for one in found.diagnosis.findings for e in one.exhibits[:6] if len(e.equal) > 1]
    rows = page.locator("#findings .exhibits tr")
    for one in shown:
        assert isinstance(one, Exhibit)
        row = rows.filter(has_text=f"{one.name} and {len(one.equal) - 1} like it")
        assert time_text(one.equal_us) in row.first.inner_text()


def test_no_number_is_cut_on_paper_or_on_a_screen(page, address):
    for width, media in ((A4_PX, "print"), (1280, "screen")):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(media=media)
        opened(page, address)
        cut = page.evaluate(
            "[...document.querySelectorAll('.scroll')]"
            ".filter((box) => box.scrollWidth > box.clientWidth + 1)"
            ".map((box) => box.getAttribute('aria-label'))"
        )
        assert cut == []
        assert page.evaluate("document.documentElement.scrollWidth") == width
