"""Results in a real notebook: executed by Jupyter's kernel, shown, and shown in Chromium."""

from __future__ import annotations

import json
import os
from html import unescape
from pathlib import Path

import pytest

import slipstream
from slipstream.outputs.html.markup import embedded

ROOT = Path(__file__).parents[2]
CONTRAST = (Path(__file__).parent / "contrast.js").read_text(encoding="utf-8")
RECORDINGS = [str(ROOT / f"tests/data/nccl2_{name}_r0.xplane.pb.gz") for name in ("lhs", "nolhs")]
CELLS = (
    f"import slipstream\nprofile, other = map(slipstream.load, {RECORDINGS!r})\nprofile",
    "slipstream.summary(profile)",
    "slipstream.ops(profile)",
    "slipstream.overlap(profile)",
    "slipstream.diff(other, profile)",
    "slipstream.diagnose(profile)",
    f"program = slipstream.read_program({str(ROOT / 'tests/data/nccl2_lhs_r0.hlo.gz')!r})\n"
    "slipstream.predict(program, slipstream.machine('2xH200'))",
    "bar = slipstream.NotebookProgress('reading', after_s=0)\nbar(3, 4)",
    "bar(4, 4)",
)
SHOWN = 7
"""cells that end with a result"""


@pytest.fixture(scope="module")
def notebook():
    import nbformat
    from nbclient import NotebookClient

    cells = [nbformat.v4.new_code_cell(cell) for cell in CELLS]
    made = nbformat.v4.new_notebook(cells=cells)
    # The kernel is this Python, which need not be installed as a kernel.
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    client = NotebookClient(made, timeout=300, kernel_name="python3")
    client.execute()
    return made


@pytest.fixture(scope="module")
def shown(notebook, tmp_path_factory) -> str:
    """A page that puts outputs where they belong as JupyterLab does, by `innerHTML`."""
    outputs = [cell.outputs[0]["data"]["text/html"] for cell in notebook.cells[:SHOWN]]
    script = (
        f"for (const html of {embedded(outputs)}) {{ const cell = document.createElement('div');"
        "cell.innerHTML = html; document.body.append(cell); }"
    )
    path = tmp_path_factory.mktemp("notebook") / "notebook.html"
    head = "<!doctype html><meta charset='utf-8'><link rel='icon' href='data:,'>"
    path.write_text(f"{head}<body><script>{script}</script></body>", encoding="utf-8")
    return path.as_uri()


def test_each_result_is_one_frame_that_needs_nothing_else(notebook):
    for cell in notebook.cells[:SHOWN]:
        (output,) = cell.outputs
        html = output["data"]["text/html"]
        assert html.startswith("<iframe srcdoc=") and html.endswith("</iframe>")
        assert "default-src 'none'" in unescape(unescape(html))
        assert output["data"]["text/plain"]


def test_progress_appears_and_goes(notebook):
    begun, ended = (cell.outputs for cell in notebook.cells[SHOWN : SHOWN + 2])
    # The bar of the first cell is the one that the second cell has emptied.
    assert [output["output_type"] for output in begun] == ["display_data"]
    assert begun[0]["data"]["text/html"] == ""
    assert ended == []


def frames(page):
    return [frame for frame in page.frames if frame != page.main_frame]


def test_frames_are_as_high_as_their_content(page, shown):
    page.goto(shown)
    assert len(frames(page)) == SHOWN
    for frame in frames(page):
        element = frame.frame_element()
        element.scroll_into_view_if_needed()
        frame.wait_for_function("innerHeight >= Math.floor(document.body.offsetHeight)")
        assert frame.evaluate("document.documentElement.scrollHeight <= innerHeight + 1")
        assert frame.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert "a step" in frames(page)[1].inner_text("main")


def test_tables_sort_and_open(page, shown):
    page.goto(shown)
    ops = frames(page)[2]
    before = ops.evaluate("innerHeight")
    ops.click("button.showall")
    ops.wait_for_function(f"innerHeight > {before}")
    ops.click("th:last-child button")
    assert ops.get_attribute("th:last-child", "aria-sort") == "descending"


@pytest.mark.parametrize(("colour", "theme"), [("#111111", "dark"), ("#ffffff", "light")])
def test_colours_are_the_notebooks(page, shown, colour, theme):
    page.goto(shown)
    page.evaluate(f"document.body.style.background = '{colour}'")
    for frame in frames(page):
        frame.wait_for_function(f"document.documentElement.dataset.theme === '{theme}'")
        assert frame.evaluate(CONTRAST) == []


def test_every_public_result_has_one():
    plain = {
        "Bounds",
        "Machine",
        "Op",
        "OpGroup",
        "Order",
        "Program",
        "Range",
        "Divisor",
        "Simulation",
        "Soundness",
    }
    results = [
        name
        for name in slipstream.__all__
        if name[0].isupper() and name not in plain and name != "NotebookProgress"
        and not issubclass(getattr(slipstream, name), Exception)
    ]  # fmt: skip
    assert [n for n in results if not hasattr(getattr(slipstream, n), "_repr_html_")] == []


def test_a_receipt():
    data = json.loads((ROOT / "docs/receipts/gpt_offload.json").read_text(encoding="utf-8"))
    assert "<iframe" in slipstream.Receipt(**data)._repr_html_()
