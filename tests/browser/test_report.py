"""The report in real Chromium: every kind of recording, and what a reader does with it."""

from __future__ import annotations

import re
import time
from functools import cache
from pathlib import Path

import pytest

from builders import Ref, hlo, profile, space
from megascale_builder import Mock, megascale
from slipstream.diagnosis.diagnose import diagnose
from slipstream.outputs.formatting import share_text, time_text
from slipstream.outputs.html.report import report_page
from slipstream.outputs.html.report_data import Results, results
from slipstream.sources.load import load
from slipstream.units import format_bytes

DATA = Path(__file__).parents[1] / "data"
CONTRAST = (Path(__file__).parent / "contrast.js").read_text(encoding="utf-8")
READY = "document.documentElement.dataset.ready"
PATIENCE_S = 200
SECTIONS = {
    "overview", "findings", "ops", "timeline", "overlap", "collectives", "idle", "roofline",
    "network", "memory", "program",
}  # fmt: skip
RECORDINGS = ("off_default", "attention_graphs", "nccl2_lhs_r0")


@cache
def recorded(name: str, against: str = "") -> Results:
    read = load(DATA / f"{name}.xplane.pb.gz")
    other = load(DATA / f"{against}.xplane.pb.gz") if against else None
    return results(read, f"{name}.xplane.pb.gz", other, against, diagnose(read))


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Writes a page once, and says where it is."""
    folder = tmp_path_factory.mktemp("pages")
    made = {}

    def write(name: str, found: Results) -> str:
        if name not in made:
            (folder / f"{name}.html").write_text(report_page(found), encoding="utf-8")
            made[name] = (folder / f"{name}.html").as_uri()
        return made[name]

    return write


def opened(page, address: str):
    page.goto(address)
    until(page, READY)
    return page


def until(page, expression: str) -> None:
    """Waits for something to be true; Playwright's own way needs `eval`, which pages forbid."""
    end = time.monotonic() + PATIENCE_S
    while not page.evaluate(expression):
        assert time.monotonic() < end, f"never true: {expression}"
        page.wait_for_timeout(20)


# What it shows.


@pytest.mark.parametrize("name", RECORDINGS)
def test_the_numbers_of_a_recording(page, pages, name):
    """Figures of the page are those of summary and ops, to the last letter."""
    found = recorded(name)
    opened(page, pages(name, found))
    assert_is_whole(page, found)


def assert_is_whole(page, found: Results, without: frozenset[str] | set[str] = frozenset()) -> None:
    """All sections are there, and numbers are those of the analyses."""
    times = found.summary.per_step
    figures = dict(
        page.eval_on_selector_all(
            "#overview .figure",
            "all => all.map(f => [f.querySelector('dt').textContent,"
            " f.querySelector('dd').firstChild.textContent])",
        )
    )
    assert figures["Step" if found.summary.step_count else "Recording"] == time_text(times.wall_us)
    assert figures["Compute"] == share_text(times.compute_us / times.wall_us)
    parts = page.eval_on_selector_all(
        "#overview > .legend:first-of-type b", "all => all.map(b => b.textContent)"
    )
    names = ("compute", "exposed_communication", "exposed_copy", "idle")
    expected = [getattr(times, f"{name}_us") for name in names]
    assert parts == [time_text(us) for us in expected if us > 0]

    page.evaluate("SlipstreamReport.opsTable.limit = 1e6; SlipstreamReport.opsTable.list(true)")
    rows = page.eval_on_selector_all(
        "#ops-table tbody tr",
        "all => all.map(row => [row.querySelector('.name').firstChild.textContent,"
        " ...[...row.cells].slice(-2).map(cell => cell.textContent)])",
    )
    assert rows == [
        [op.description or op.instruction, time_text(op.per_step_us), share_text(op.share)]
        for op in found.ops.ops
    ]
    ids = page.eval_on_selector_all("main > section", "all => all.map(one => one.id)")
    links = page.eval_on_selector_all(
        "nav a", "all => all.map(a => a.getAttribute('href').slice(1))"
    )
    assert links == ids
    assert SECTIONS - without <= set(ids)


def test_a_tpu_between_slices(page, pages, tmp_path):
    """A mock of a Megascale profile with troubles: nested lanes, network charts, findings."""
    path = megascale(Mock(wait_us=900, slack_us=100, maps_in_steps=5)).write(
        tmp_path / "t.xplane.pb"
    )
    read = load(path)
    found = results(read, path.name, diagnosis=diagnose(read))
    opened(page, pages("tpu", found))
    assert_is_whole(page, found)
    assert page.locator("#megascale [data-rule=map-dma-buffer]").count() == 1
    assert page.locator("#megascale figure").count() == len(found.network.series) + 1
    assert page.locator("#collectives .empty, #collectives table").count() >= 1


def test_a_cpu(page, pages, tmp_path):
    """XLA's CPU backend: operations on threads, no GPU, no roof."""
    built = space().program("jit_f(1)", hlo("jit_f", ["dot.1", "add.2"]))
    line = built.host().line("tf_XLAEigen/1")
    for at in range(0, 300, 100):
        labels = {"hlo_module": "jit_f", "program_id": 1}
        line.event("dot.1", at, 60, hlo_op=Ref("dot.1"), **labels)
        line.event("add.2", at + 60, 20, hlo_op=Ref("add.2"), **labels)
    read = load(built.write(tmp_path / "cpu.xplane.pb"))
    assert [device.kind for device in read.devices] == ["cpu"]
    found = results(read, "cpu.xplane.pb", diagnosis=diagnose(read))
    opened(page, pages("cpu", found))
    assert_is_whole(page, found)
    assert page.locator("#collectives .empty").inner_text() == "No collectives in this program."
    assert "No roof to compare with" in page.locator("#roofline .empty").inner_text()


def test_an_archive_of_nsight(page, pages, external):
    """One process of the Pax run on four A100, with scopes in its map."""
    read = load(external / "nsysjax_pax_fsdp4_a100_proc0.zip")
    found = results(read, "pax")
    opened(page, pages("pax", found))
    assert_is_whole(page, found, without={"findings"})
    assert page.locator("#overview .warnings li").count() == len(read.warnings)
    assert page.locator("#map .group > span").first.inner_text().startswith("xformer_lm")


def test_two_devices(page, pages):
    """Devices beside each other, each with its lanes in the timeline."""
    built = profile()
    for _ in range(3):
        built.execution_of().kernel("dot.1", 80).all_reduce(20)
    built.device("GPU:1").at(0)
    for _ in range(3):
        built.execution_of().kernel("dot.1", 80).all_reduce(20)
    found = results(built.build(), "two")
    opened(page, pages("two", found))
    assert_is_whole(page, found, without={"findings"})
    assert page.locator("#hosts tbody tr").count() == 2
    groups = "[...new Set(SlipstreamReport.data.step.lanes.map(lane => lane.group))]"
    assert page.evaluate(groups) == ["GPU:0", "GPU:1"]


def test_nothing_on_the_device(page, pages, tmp_path):
    """A recording of a host only says so in every section."""
    built = space().note(hostname="a")
    built.host().line("python").annotation(0, 0, 100)
    read = load(built.write(tmp_path / "empty.xplane.pb"))
    opened(page, pages("empty", results(read, "empty.xplane.pb")))
    assert "Nothing ran on a device" in page.locator("#overview .lede").inner_text()
    for section in ("ops", "timeline", "overlap", "collectives"):
        assert page.locator(f"#{section} .empty").count() == 1


def test_against_another(page, pages):
    """Both bars, the verdict, and the op that changed most first."""
    found = recorded("off_pgle_nocb", "off_default")
    opened(page, pages("against", found))
    diff = found.diff
    assert diff is not None and diff.verdict.verdict == "faster"
    assert page.locator("#diff .lede b").inner_text().startswith("Faster: −")
    assert page.locator("#diff .sides > .bar").count() == 2
    first = page.locator("#diff table").nth(1).locator("tbody tr").first
    assert diff.changes[0].description in first.inner_text()


# What a reader does.


def test_the_timeline_zooms_searches_and_tells(page, pages):
    found = recorded("nccl2_lhs_r0")
    opened(page, pages("nccl2_lhs_r0", found))
    page.locator("#timeline-view[data-ready]").wait_for()
    span = "SlipstreamReport.view.to - SlipstreamReport.view.from"
    whole = page.evaluate(span)
    assert whole == pytest.approx(page.evaluate("SlipstreamReport.data.step.end_ns / 1000"))
    canvas = page.locator("#timeline-view canvas")
    canvas.focus()
    page.keyboard.press("w")
    until(page, f"({span}) < {whole} * 0.9")
    page.keyboard.press("f")
    until(page, f"Math.abs(({span}) - {whole}) < 1")

    page.keyboard.press("/")
    page.keyboard.type("all-to-all.10.1")
    page.keyboard.press("Enter")
    panel = page.locator("#timeline-view .tl-panel")
    panel.get_by_text("model.py:22").wait_for()
    row = next(row for row in found.slack.rows if row.instruction == "all-to-all.10.1")
    shown = dict(
        page.eval_on_selector_all(
            "#timeline-view .tl-panel dt",
            "all => all.map(dt => [dt.textContent, dt.nextElementSibling.textContent])",
        )
    )
    op = next(op for op in found.ops.ops if op.instruction == "all-to-all.10.1")
    assert shown["source"] == op.source
    assert shown["cost"].startswith(f"{time_text(op.per_step_us)} per step")
    assert shown["slack"] == f"none; needed by {row.limit_description or row.limit}"
    panel.get_by_role("button", name="Go to its partner").click()
    panel.get_by_text(row.limit_description).first.wait_for()


def test_an_op_leads_to_the_timeline(page, pages):
    opened(page, pages("off_default", recorded("off_default")))
    page.locator("#ops-table .name").first.click()
    page.get_by_role("button", name="Show in the timeline").click()
    first = recorded("off_default").ops.ops[0]
    page.locator("#timeline-view .tl-panel h3").get_by_text(first.description).wait_for()
    until(page, "SlipstreamReport.view.to - SlipstreamReport.view.from < 1e5")


def test_the_ops_are_searched_and_sorted(page, pages):
    found = recorded("off_default")
    opened(page, pages("off_default", found))
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "ops-search"
    page.keyboard.type("matmul backward")
    hits = [op for op in found.ops.groups if op.category == "matmul" and op.phase == "backward"]
    total = time_text(sum(op.per_step_us for op in hits))
    state = page.locator("#ops-state")
    assert state.inner_text() == f"{len(hits)} of {len(found.ops.groups)}, {total}"
    page.locator("#ops-search").fill("no such op")
    assert state.inner_text() == "no matches"
    page.locator("#ops-search").fill("")
    source = page.locator("#ops-table [data-sort=source]")
    source.click()
    assert source.locator("xpath=..").get_attribute("aria-sort") == "ascending"
    head = page.locator("#overlap table").last.locator("th button").nth(2)
    head.click()
    assert head.locator("xpath=..").get_attribute("aria-sort") == "descending"


def test_equal_ops_are_one_row_or_each_its_own(page, pages):
    found = recorded("off_default")
    opened(page, pages("off_default", found))
    same = next(one for one in found.ops.groups if len(one.instructions) > 1)
    assert same.instruction == same.instructions[0]
    page.locator("#ops-search").fill(same.instruction)
    row = page.locator("#ops-table tbody tr", has_text=f"{same.instruction} and ").first
    cells = [cell.strip() for cell in row.locator("td").all_inner_texts()]
    assert cells[0].endswith(f"{same.instruction} and {len(same.instructions) - 1} like it")
    assert cells[-2:] == [time_text(same.per_step_us), share_text(same.share)]
    row.locator(".name").click()
    assert f"{len(same.instructions)} in all" in page.locator("#ops-table tr.about").inner_text()
    page.get_by_role("button", name="Each op").click()
    assert page.locator("#ops-table tbody tr", has_text=" like it").count() == 0
    page.locator("#ops-search").fill("")
    page.evaluate("SlipstreamReport.opsTable.limit = 1e6; SlipstreamReport.opsTable.draw()")
    assert page.locator("#ops-table tbody tr:not(.about)").count() == len(found.ops.ops)


def test_a_finding_has_an_address(page, pages):
    found = recorded("off_default")
    address = pages("off_default", found)
    opened(page, address)
    last = found.diagnosis.findings[-1]
    link = page.locator(f"#findings [data-rule={last.rule}] h3 a")
    link.click()
    assert page.url == f"{address}#finding-{last.rule}"
    page.goto("about:blank")
    opened(page, f"{address}#finding-{last.rule}")
    until(page, f"document.querySelector('#finding-{last.rule}:target') !== null && scrollY > 0")


def test_the_map_goes_into_a_group_and_back(page, pages):
    found = recorded("off_default")
    opened(page, pages("off_default", found))
    groups = page.locator("#map .group > span")
    phases = sorted(found.summary.phases_us, key=lambda phase: -found.summary.phases_us[phase])
    assert groups.first.inner_text() == (
        f"{phases[0]} {time_text(found.summary.phases_us[phases[0]])}"
    )
    page.locator("#map .group").first.focus()
    page.keyboard.press("Enter")
    assert page.locator("#map-path").inner_text().split() == ["All", "›", phases[0]]
    page.keyboard.press("Backspace")
    assert page.locator("#map-path").inner_text() == "All"
    page.locator("#ops [data-by=category]").click()
    assert "matmul" in groups.first.inner_text()
    page.locator("#map .cell").first.click()
    assert page.locator("#ops-table tr.about").count() == 1


def test_keys_and_theme(page, pages):
    opened(page, pages("off_default", recorded("off_default")))
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    page.keyboard.press("t")
    assert page.evaluate(background) != light
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.keyboard.press("?")
    assert page.locator("dialog").is_visible()
    page.keyboard.press("Escape")
    page.locator("dialog").wait_for(state="hidden")
    page.emulate_media(reduced_motion="reduce")
    page.keyboard.press("j")
    page.locator("nav a[aria-current]", has_text="Findings").wait_for()


def test_the_theme_is_remembered(page, pages):
    address = pages("off_default", recorded("off_default"))
    theme = "document.documentElement.dataset.theme"
    opened(page, address).keyboard.press("t")
    assert page.evaluate(theme) == "dark"
    # In the same tab: other tabs learn of it in Chromium's own time.
    assert opened(page, address).evaluate(theme) == "dark"


def test_a_dark_system_gets_a_dark_page(dark, pages):
    opened(dark, pages("off_default", recorded("off_default")))
    assert dark.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(16, 19, 23)"


@pytest.mark.parametrize("theme", ["page", "dark"])
def test_texts_can_be_read(request, pages, theme):
    """WCAG AA: 4.5 to 1, of every text on the page, light and dark."""
    shown = request.getfixturevalue(theme)
    opened(shown, pages("against", recorded("off_pgle_nocb", "off_default")))
    assert shown.evaluate(CONTRAST) == []


def test_texts_that_can_not_be_read_are_found(page, pages):
    opened(page, pages("off_default", recorded("off_default")))
    page.evaluate("document.querySelector('h1').style.color = '#8a8a8a'")
    assert len(page.evaluate(CONTRAST)) == 1


def test_everything_has_a_name(page, pages):
    """Controls and drawings say what they are to who can't see them."""
    opened(page, pages("against", recorded("off_pgle_nocb", "off_default")))
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll("button, input, a, svg, canvas, table")]
          .filter((one) => !one.closest("[aria-hidden=true]") &&
          !(one.getAttribute("aria-label") || one.textContent.trim() || one.title)
        ).map((one) => one.outerHTML.slice(0, 80))"""
    )
    assert unnamed == []
    assert page.evaluate("document.documentElement.lang") == "en"
    levels = page.eval_on_selector_all("h1, h2, h3", "all => all.map(h => Number(h.tagName[1]))")
    assert levels[0] == 1 and all(b - a <= 1 for a, b in zip(levels, levels[1:], strict=False))


@pytest.mark.parametrize("name", ["off_default", "nccl2_lhs_r0", "against"])
def test_a_phone_never_scrolls_sideways(phone, pages, name):
    found = recorded("off_pgle_nocb", "off_default") if name == "against" else recorded(name)
    opened(phone, pages(name, found))
    assert phone.evaluate("document.documentElement.scrollWidth") == 390
    shown = phone.locator("#timeline-view canvas").bounding_box()
    assert shown is not None and shown["x"] >= 0 and shown["x"] + shown["width"] <= 390
    phone.locator("#ops-table .name").first.tap()
    assert phone.locator("#ops-table tr.about").is_visible()


def test_paper_is_light_and_without_controls(page, pages):
    opened(page, pages("off_default", recorded("off_default")))
    page.keyboard.press("t")
    page.emulate_media(media="print")
    body = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert body == "rgb(255, 255, 255)"
    assert not page.locator(".side").is_visible()
    assert page.locator("#ops-table tbody tr").count() > 5
    assert len(page.pdf()) > 10_000


def test_no_network_even_if_asked(page, pages):
    """The policy in the head refuses what a script might try."""
    other = page.context.new_page()
    opened(other, pages("off_default", recorded("off_default")))
    refused = other.evaluate(
        "() => new Promise((done) => { document.addEventListener('securitypolicyviolation',"
        " (event) => done(event.effectiveDirective));"
        " const image = new Image(); image.src = 'file:///x.png'; })"
    )
    assert refused == "img-src"


def test_names_of_ops_are_only_names(page, pages, tmp_path):
    """What a program calls its instructions can't become part of the page."""
    bad = "</script><img src=x onerror=alert(1)>\u2028.1"
    built = space()
    stream = built.gpu().line("Stream #1(Kernel)")
    for step in range(3):
        stream.kernel(bad, step * 100, 50, bad, correlation=step + 1)
    read = load(built.write(tmp_path / "bad.xplane.pb"))
    opened(page, pages("bad", results(read, "<b>bad</b>", diagnosis=diagnose(read))))
    assert page.locator("img").count() == 0
    assert page.locator("#ops-table .name").first.inner_text().startswith("</script><img")
    assert page.locator(".facts").inner_text().endswith("<b>bad</b>")


def test_the_address_leads_to_what_was_seen(page, pages):
    address = pages("nccl2_lhs_r0", recorded("nccl2_lhs_r0"))
    opened(page, address)
    page.locator("#timeline-view[data-ready]").wait_for()
    view = "SlipstreamReport.view"
    page.evaluate(f"{view}.setView(1e6, 2e6)")
    until(page, f"{view}.covers()")
    lane = f"{view}.source.lanes.find((lane) => lane.kind === 'stream').id"
    page.evaluate(
        f"{view}.select({lane}, {view}.current.byLane.get({lane}).start[5], {{ depth: 0 }})"
    )
    until(page, "location.hash.includes('from=1000000.000') && location.hash.includes('at=')")
    chosen, link = page.evaluate(f"{view}.selected.start_us"), page.url
    page.goto("about:blank")
    page.goto(link)
    page.locator("#timeline-view[data-ready]").wait_for()
    assert page.evaluate(f"[{view}.from, {view}.to]") == pytest.approx([1e6, 2e6])
    assert page.evaluate(f"{view}.selected.start_us") == pytest.approx(chosen)


def test_exposed_time_slack_and_roofline_are_drawn(page, pages):
    found = recorded("nccl2_lhs_r0")
    opened(page, pages("nccl2_lhs_r0", found))
    layers = page.locator("#overlap figure", has_text="Exposed time by layer")
    assert "30 ms outside of layers" in layers.inner_text()
    titles = layers.locator("rect title").all_text_contents()
    exposed = {one.number: one for one in found.layers if one.phase == "backward"}
    assert {f"turn {n}, backward, communication" in " ".join(titles) for n in range(4)} == {True}
    assert f"{time_text(exposed[3].communication_us)}" in " ".join(titles)
    assert page.locator("#overlap .lane-row").count() == 16
    dots = page.locator("#roofline circle")
    counted = [row for row in found.roofline.rows if row.best_us is not None and row.flops]
    assert dots.count() == len(counted)
    assert "of the roof" in dots.first.locator("title").text_content()


def test_the_map_is_an_icicle_on_demand(page, pages):
    opened(page, pages("nccl2_lhs_r0", recorded("nccl2_lhs_r0")))
    page.locator("[data-shape=icicle]").click()
    boxes = page.locator("#map .cell")
    assert page.locator("#map .group").count() == 0 and boxes.count() > 10
    # Each row hangs below what it belongs to, and a click on a group goes into it.
    tops = page.eval_on_selector_all("#map .cell", "all => all.map(one => one.offsetTop)")
    assert sorted(set(tops))[:2] == [0, 27]
    first = boxes.first.get_attribute("aria-label").split(",")[0]
    boxes.first.click()
    assert page.locator("#map-path").inner_text().split()[-1] == first
    assert page.evaluate(CONTRAST) == []


def test_no_picture_cuts_a_number(page, pages):
    """Boxes of the map and names of lanes are whole, or cut where nothing is lost."""
    found = recorded("off_default")
    opened(page, pages("off_default", found))
    tile = page.locator("#map .cell", has_text="copy from host").first
    assert tile.inner_text().split("\n")[:2] == ["copy from host", "134 MB"]
    texts = page.locator("#map b, #map small, #map .group > span").all_inner_texts()
    assert len(texts) > 30 and not [text for text in texts if re.search(r"[\d.,]…$", text)]
    too_wide = (
        "all => all.filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.innerText)"
    )
    for boxes in ("#map b, #map .group > span", ".lane-name, .lane-name span, .lane-name b"):
        assert page.eval_on_selector_all(boxes, too_wide) == []
    sizes = page.locator("#overlap .lane-name b").all_inner_texts()
    assert sizes and all(re.fullmatch(r"[\d.]+ [kMG]?B", size) for size in sizes)


def test_names_are_cut_so_that_they_still_tell(page, pages):
    """With letters of one pixel each."""
    opened(page, pages("off_default", recorded("off_default")))

    def said(call: str) -> object:
        return page.evaluate(f"SlipstreamLabels.{call[:-1]}, (text) => text.length)")

    assert said("shortened('all-gather w1, w2 29.5 MB', 40)") == "all-gather w1, w2 29.5 MB"
    assert said("shortened('all-gather w1, w2 29.5 MB', 20)") == "all-gather… 29.5 MB"
    assert said("shortened('all-gather w1, w2 29.5 MB', 9)") == "all-gath…"
    assert said("shortened('all-gather w1, w2 29.5 MB', 3)") == ""
    assert said("shortened('2,610 slices', 9)") == "2,610 sl…"
    assert said("shortened('2,610 slices', 5)") == ""
    assert said("wrapped('all-gather w1, w2 29.5 MB', 11, 3)") == [
        "all-gather",
        "w1, w2",
        "29.5 MB",
    ]
    assert said("wrapped('all-gather w1, w2 29.5 MB', 11, 2)") == ["all-gather…", "29.5 MB"]
    assert said("wrapped('all-gather w1, w2 29.5 MB', 4, 2)") == ["all-", "gat…"]
    assert said("wrapped('12 × reduce max', 6, 3)") == ["12 ×", "reduce", "max"]
    assert said("wrapped('10 smaller', 3, 4)") == []


def test_lives_of_buffers_are_drawn(page, pages):
    found = recorded("off_default")
    opened(page, pages("off_default", found))
    names = page.locator("#memory .lane-name").all_inner_texts()
    largest = next(one for one in found.memory.programs[0].makers if one.kind == "temporary")
    size = format_bytes(largest.bytes)
    name = (largest.description or largest.instruction).removesuffix(f" {size}")
    assert names[0] == "the peak" and names[1].split("\n") == [name, size]


def test_an_address_with_a_zoom_opens_at_the_timeline(page, pages):
    address = pages("off_default", recorded("off_default"))
    opened(page, f"{address}#timeline?from=1000.000&to=5000.000")
    top = "document.querySelector('#timeline').getBoundingClientRect().top"
    until(page, f"Math.abs({top}) < 100")
    assert page.url.endswith("#timeline?from=1000.000&to=5000.000")


def test_tables_and_plots_can_be_copied(page, pages):
    opened(page, pages("nccl2_lhs_r0", recorded("nccl2_lhs_r0")))
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    table = page.locator("#overlap table").first
    copied = page.evaluate("SlipstreamShare.markdown(document.querySelector('#overlap table'))")
    lines = copied.splitlines()
    assert lines[0].startswith("| Phase | Communication |") and lines[1].startswith(
        "| --- | ---: |"
    )
    assert len(lines) == 2 + table.locator("tbody tr").count()
    most = page.evaluate("SlipstreamShare.markdown(document.querySelectorAll('#overlap table')[1])")
    header, _, first, *_ = most.splitlines()
    assert header == (
        "| Collective or copy | Source | Bytes | Per step | Exposed | Hidden | Hidden behind |"
    )
    assert first.startswith("| all-to-all 1.07 GB `all-to-all.10.1` | `model.py:22` | 1.07 GB |")
    page.locator("#overlap .button.share").first.click()
    until(page, "navigator.clipboard.readText().then((text) => text.startsWith('| Phase'))")
    size = "SlipstreamShare.imageOf(document.querySelector('.plot svg')).then((c) => c.width)"
    assert page.evaluate(size) > 500
    assert page.locator(".button.share", has_text="Copy as image").count() >= 2
