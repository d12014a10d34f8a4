"""Receipts and predictions in real Chromium: the same shell, the same rules as the report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from slipstream.cli.main import app
from slipstream.outputs.pages.receipt import receipt_page

ROOT = Path(__file__).parents[2]
CONTRAST = (Path(__file__).parent / "contrast.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def receipt(tmp_path_factory) -> str:
    data = json.loads((ROOT / "docs/receipts/gpt_offload.json").read_text(encoding="utf-8"))
    path = tmp_path_factory.mktemp("receipt") / "receipt.html"
    path.write_text(receipt_page(data), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def prediction(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("prediction") / "page.html"
    program = str(ROOT / "tests/data/nccl2_lhs_r0.hlo.gz")
    options = ["--on", "2xH200,2xH100", "--html", str(path)]
    done = CliRunner().invoke(app, ["simulate", program, *options], catch_exceptions=False)
    assert done.exit_code == 0
    return path.as_uri()


def test_a_receipt(page, receipt):
    page.goto(receipt)
    assert page.locator("h1").inner_text() == "jit_step: faster"
    assert page.locator("#steps .sides > .bar").count() == 2
    assert page.locator("#programs tbody tr").count() == 4
    assert page.evaluate(CONTRAST) == []
    page.locator("#programs th button", has_text="Step").first.click()
    assert page.locator("#programs th[aria-sort=descending]").count() == 1
    page.locator("summary").click()
    assert page.locator("details pre").is_visible()


def test_a_prediction(page, prediction):
    page.goto(prediction)
    assert page.locator("h1").inner_text() == "jit_train_step, predicted"
    assert page.locator("#prediction .sides > .bar").count() == 2
    assert page.evaluate(CONTRAST) == []
    page.locator("#timeline-view[data-ready]").wait_for()


def test_on_a_phone(phone, receipt, prediction):
    for address in (receipt, prediction):
        phone.goto(address)
        assert phone.evaluate("document.documentElement.scrollWidth") == 390


def test_in_the_dark(dark, receipt, prediction):
    for address in (receipt, prediction):
        dark.goto(address)
        assert dark.evaluate(CONTRAST) == []
