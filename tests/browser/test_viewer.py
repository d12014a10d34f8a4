"""The viewer in real Chromium: zoom, search, selection, theme, small screens, live reload."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from serve.recordings import serving, write_recording

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from slipstream.serve.server import Server

VIEW = "SlipstreamViewer.view"
PATIENCE_S = 200


@pytest.fixture(scope="module")
def nccl(data: Path) -> Iterator[Server]:
    """Two GPUs' collectives, recorded by one of them."""
    with serving(data / "nccl2_lhs_r0.xplane.pb.gz") as server:
        yield server


def opened(page: Page, server: Server, whole: bool = True) -> Page:
    """The page once it has drawn its first view; by default, of the whole recording."""
    page.goto(server.url)
    page.wait_for_selector(".tl[data-ready]")
    page.wait_for_selector("#timeline[data-structure]")
    if whole:
        page.evaluate(f"{VIEW}.setView({VIEW}.start, {VIEW}.end)")
        until(page, f"{VIEW}.covers()", bool)
    page.wait_for_selector("#range[data-ready]")
    return page


def until(page: Page, expression: str, wanted: Callable[[Any], bool]) -> Any:
    """An expression's value, once it is as wanted: the page's policy forbids to wait inside it."""
    return once(page, lambda: page.evaluate(expression), wanted, expression)


def once(page: Page, look: Callable[[], Any], wanted: Callable[[Any], bool], name: str) -> Any:
    """What is seen, once it is as wanted."""
    end = time.monotonic() + PATIENCE_S
    while not wanted(value := look()):
        assert time.monotonic() < end, f"{name} is still {value!r}"
        page.wait_for_timeout(50)
    return value


def span(page: Page) -> float:
    return float(page.evaluate(f"{VIEW}.to - {VIEW}.from"))


def pixels(page: Page) -> dict[str, int]:
    """How often the commonest colours of the canvas occur."""
    return page.evaluate(
        """() => {
          const canvas = document.querySelector(".tl-canvas");
          const copy = document.createElement("canvas");
          [copy.width, copy.height] = [canvas.width, canvas.height];
          const context = copy.getContext("2d", { willReadFrequently: true });
          context.drawImage(canvas, 0, 0);
          const data = context.getImageData(0, 0, copy.width, copy.height).data;
          const found = {};
          for (let i = 0; i < data.length; i += 4) {
            const key = data.slice(i, i + 3).join(",");
            found[key] = (found[key] || 0) + 1;
          }
          return found;
        }"""
    )


def box_of(page: Page, lane: int, at: int) -> tuple[float, float]:
    """Where the middle of a lane's slice is on the page."""
    found = page.evaluate(
        f"""([lane, at]) => {{
          const view = {VIEW};
          const data = view.current.byLane.get(lane);
          const row = view.rowOf(lane);
          const us = data.start[at] + data.duration[at] / 2;
          const canvas = view.canvas.getBoundingClientRect();
          return [
            canvas.left + view.painter.x(us),
            canvas.top + view.top + row.y - view.scroll + row.height / 2,
          ];
        }}""",
        [lane, at],
    )
    return found[0], found[1]


def longest(page: Page, lane: int) -> int:
    """The longest slice of a lane that is wholly in sight."""
    return page.evaluate(
        f"""(lane) => {{
          const {{ current, from, to }} = {VIEW};
          const data = current.byLane.get(lane);
          let best = -1;
          data.duration.forEach((us, i) => {{
            const inside = data.start[i] > from && data.start[i] + us < to && data.count[i] === 1;
            if (inside && (best < 0 || us > data.duration[best])) best = i;
          }});
          return best;
        }}""",
        lane,
    )


def test_the_address_forgets_the_token_and_the_page_says_what_it_shows(
    page: Page, nccl: Server
) -> None:
    opened(page, nccl, whole=False)
    assert page.url == f"http://127.0.0.1:{nccl.server_port}/"
    assert page.text_content("#title") == "nccl2_lhs_r0"
    assert page.title() == "nccl2_lhs_r0 · slipstream"
    assert "2,052 device events" in (page.text_content("#facts") or "")
    until(page, "document.querySelector('#range').textContent", lambda t: "all-to-all.10.1" in t)
    page.reload()
    page.wait_for_selector(".tl[data-ready]")


def test_it_opens_on_a_typical_step_with_its_structure(page: Page, nccl: Server) -> None:
    opened(page, nccl, whole=False)
    # Three steps of about 3.5 s: one of them, and a little around it.
    assert 3.4e6 < span(page) < 3.8e6 < page.evaluate(f"{VIEW}.end - {VIEW}.start") / 2
    shown = page.evaluate(f"{VIEW}.rows.filter((row) => row.lane).map((row) => row.lane.name)")
    assert shown[:5] == ["module", "phase", "turn", "source", "path"]
    assert shown[5].startswith("Stream")
    until(page, f"{VIEW}.covers()", bool)
    texts = f"""(() => {{
      const id = {VIEW}.source.lanes.find((lane) => lane.name === "turn").id;
      const found = {VIEW}.current.byLane.get(id);
      return [...found.name].map((name) => {VIEW}.current.descriptions[name]);
    }})()"""
    assert "backward of turn 3 of 4" in page.evaluate(texts)


def test_a_span_of_structure_is_measured(page: Page, nccl: Server) -> None:
    opened(page, nccl, whole=False)
    page.fill("input[type=search]", "backward of turn 3")
    page.keyboard.press("Enter")
    until(page, "document.getElementById('range-title').textContent", lambda t: t == "Measured")
    from_us, to_us = page.evaluate(f"{VIEW}.range")
    assert to_us - from_us == pytest.approx(page.evaluate(f"{VIEW}.selected.duration_us"))
    assert page.text_content("#selected h3") == "backward of turn 3 of 4"


def test_readable_names_first_and_hlo_names_on_demand(page: Page, nccl: Server) -> None:
    opened(page, nccl, whole=False)
    name = f"{VIEW}.nameOf({VIEW}.selected)"
    page.fill("input[type=search]", "all-gather.9.1")
    page.keyboard.press("Enter")
    until(page, f"Boolean({VIEW}.selected)", bool)
    assert page.evaluate(name).startswith("all-gather ")
    page.focus(".tl-canvas")
    page.keyboard.press("n")
    assert page.evaluate(name) == "all-gather.9.1"
    assert page.get_attribute("text=HLO names", "aria-pressed") == "true"


def test_kinds_are_drawn_in_the_theme_s_colours(page: Page, nccl: Server) -> None:
    opened(page, nccl)
    # --communication of the light theme, and its background.
    light = pixels(page)
    assert light.get("221,131,39", 0) > 20 and light["255,255,255"] > 10_000
    page.click("button.theme")
    until(page, "document.documentElement.dataset.theme", lambda theme: theme == "dark")
    dark = once(page, lambda: pixels(page), lambda seen: seen.get("16,19,23", 0) > 10_000, "dark")
    assert dark.get("255,255,255", 0) < 200
    page.keyboard.press("t")
    until(page, "document.documentElement.dataset.theme", lambda theme: theme == "light")


def test_wheel_zooms_about_the_pointer_and_drag_moves(page: Page, nccl: Server) -> None:
    opened(page, nccl)
    before = span(page)
    x, y = 700, 300
    time_at = f"{VIEW}.timeAt({x} - {VIEW}.canvas.getBoundingClientRect().left)"
    under = page.evaluate(time_at)
    page.mouse.move(x, y)
    page.mouse.wheel(0, -600)
    until(page, f"{VIEW}.to - {VIEW}.from", lambda now: now < before / 2)
    assert page.evaluate(time_at) == pytest.approx(under, rel=1e-6)
    from_us = page.evaluate(f"{VIEW}.from")
    page.mouse.down()
    page.mouse.move(x - 120, y, steps=4)
    page.mouse.up()
    until(page, f"{VIEW}.from", lambda now: now > from_us)
    assert page.evaluate(time_at) == pytest.approx(under + 120 * span(page) / plot(page), rel=1e-3)


def plot(page: Page) -> float:
    return float(page.evaluate(f"{VIEW}.width - {VIEW}.gutter"))


def test_keys_zoom_move_and_fit(page: Page, nccl: Server) -> None:
    opened(page, nccl)
    whole = span(page)
    page.keyboard.press("w")
    until(page, f"{VIEW}.to - {VIEW}.from", lambda now: now == pytest.approx(whole / 1.6))
    start = page.evaluate(f"{VIEW}.from")
    page.keyboard.press("d")
    until(page, f"{VIEW}.from", lambda now: now > start)
    page.keyboard.press("f")
    until(page, f"{VIEW}.to - {VIEW}.from", lambda now: now == whole)


def test_zooming_in_shows_what_was_a_block(page: Page, nccl: Server) -> None:
    opened(page, nccl)
    count = f"[...{VIEW}.current.byLane.get(0).count]"
    assert max(page.evaluate(count)) > 1
    page.evaluate(f"{VIEW}.zoomTo(5.5e6, 5.502e6)")
    until(page, f"{VIEW}.current.span", lambda now: now == pytest.approx(2000))
    assert set(page.evaluate(count)) <= {1}
    assert "device events" in (page.text_content("#range") or "")


def test_search_goes_from_hit_to_hit(page: Page, nccl: Server) -> None:
    opened(page, nccl)
    page.keyboard.press("/")
    page.keyboard.type("all-gather.9.1")
    page.keyboard.press("Enter")
    until(page, "document.querySelector('#selected')?.textContent", lambda t: "all-gather.9.1" in t)
    first = page.evaluate(f"{VIEW}.selected.start_us")
    assert " of " in (page.text_content(".tl-found") or "")
    page.click("[aria-label^='Next hit']")
    until(page, f"{VIEW}.selected.start_us", lambda now: now != first)
    page.keyboard.press("Escape")
    page.focus(".tl-canvas")
    page.keyboard.press("Escape")
    assert page.evaluate(f"{VIEW}.hits.length") == 0
    page.fill("input[type=search]", "no such op")
    until(page, "document.querySelector('.tl-found').textContent", lambda t: t == "no matches")


def test_source_lines_are_found(page: Page, nccl: Server) -> None:
    opened(page, nccl)
    page.fill("input[type=search]", "model.py:22")
    until(page, f"{VIEW}.hits.length", lambda count: count > 10)


def test_a_click_tells_what_a_slice_is_and_draws_an_arrow_to_its_partner(
    page: Page, nccl: Server
) -> None:
    opened(page, nccl)
    page.evaluate(f"{VIEW}.zoomTo(5.0e6, 6.2e6)")
    until(page, f"{VIEW}.current.span", lambda now: now == pytest.approx(1.2e6))
    x, y = box_of(page, 1, longest(page, 1))
    page.mouse.move(x, y)
    until(page, "document.querySelector('.tl-tip').textContent", lambda t: "ms" in t)
    page.mouse.click(x, y)
    until(page, "document.querySelectorAll('#selected dt').length", lambda count: count > 6)
    said = page.text_content("#selected") or ""
    for part in ("sourcemodel.py:", "slack", "per execution", "programjit_train_step", "bytes"):
        assert part in said
    until(page, f"{VIEW}.partner?.lane", lambda lane: lane == 0)
    assert "duration" in (page.text_content("[aria-live=polite]") or "")
    before = page.evaluate(f"{VIEW}.selected.start_us")
    page.click("text=Go to its partner")
    until(page, f"{VIEW}.selected.start_us", lambda now: now > before)


def test_an_op_of_the_summary_is_found_by_a_click(page: Page, nccl: Server) -> None:
    opened(page, nccl)
    page.click("#range .ops button >> nth=0")
    until(
        page, "document.querySelector('#selected')?.textContent", lambda t: "all-to-all.10.1" in t
    )


def test_shift_and_drag_measures(page: Page, nccl: Server) -> None:
    opened(page, nccl)
    page.keyboard.down("Shift")
    page.mouse.move(400, 400)
    page.mouse.down()
    page.mouse.move(600, 400, steps=4)
    page.mouse.up()
    page.keyboard.up("Shift")
    until(page, "document.getElementById('range-title').textContent", lambda t: t == "Measured")
    from_us, to_us = page.evaluate(f"{VIEW}.range")
    assert to_us - from_us == pytest.approx(200 * span(page) / plot(page), rel=1e-3)


def test_threads_unfold_by_a_click_on_their_group(page: Page, nccl: Server) -> None:
    opened(page, nccl)
    shown = f"{VIEW}.rows.filter((row) => row.lane).length"
    before = page.evaluate(shown)
    box = page.evaluate(
        f"""() => {{
          const row = {VIEW}.rows.find((row) => row.collapsed);
          const canvas = {VIEW}.canvas.getBoundingClientRect();
          return [canvas.left + 20, canvas.top + {VIEW}.top + row.y + row.height / 2];
        }}"""
    )
    page.mouse.click(*box)
    until(page, shown, lambda now: now > before)
    until(page, f"{VIEW}.current.full.has({before})", bool)


def test_a_small_screen_has_everything_below_each_other(phone: Page, nccl: Server) -> None:
    opened(phone, nccl)
    assert phone.evaluate("document.documentElement.scrollWidth") <= 390
    timeline = phone.locator("#timeline").bounding_box()
    side = phone.locator("#side").bounding_box()
    assert timeline is not None and side is not None
    assert side["y"] >= timeline["y"] + timeline["height"] and side["width"] >= 360
    x, y = box_of(phone, 1, longest(phone, 1))
    phone.touchscreen.tap(x, y)
    until(phone, "document.querySelectorAll('#selected dt').length", lambda count: count > 6)


def test_two_fingers_zoom_and_one_moves(phone: Page, nccl: Server) -> None:
    opened(phone, nccl)
    before = span(phone)
    box = phone.locator(".tl-canvas").bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    hand = phone.context.new_cdp_session(phone)

    def touch(kind: str, *xs: float) -> None:
        points = [{"x": x, "y": y, "id": i} for i, x in enumerate(xs)]
        hand.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    touch("touchStart", 220, 260)
    for apart in (40, 80, 120):
        touch("touchMove", 220 - apart / 3, 260 + apart / 3)
    touch("touchEnd")
    until(phone, f"{VIEW}.to - {VIEW}.from", lambda now: now < before / 2)
    start = phone.evaluate(f"{VIEW}.from")
    touch("touchStart", 300)
    for x in (280, 240, 200):
        touch("touchMove", x)
    touch("touchEnd")
    until(phone, f"{VIEW}.from", lambda now: now > start)


def test_two_profiles_stand_below_each_other(page: Page, data: Path) -> None:
    names = ("nccl2_lhs_r0", "nccl2_nolhs_r0")
    with serving(*(data / f"{name}.xplane.pb.gz" for name in names)) as server:
        opened(page, server)
        groups = page.evaluate(f"[...{VIEW}.groups.keys()]")
        firsts = page.evaluate(f"{VIEW}.steps.filter((step) => step.number === 0).length")
        titles = page.evaluate(
            "[...document.querySelectorAll('#range h3')].map((h) => h.textContent)"
        )
    assert groups == [
        f"{name} · {of}" for name in names for of in ("GPU:0 · NVIDIA H200", "vm · threads")
    ]
    assert (firsts, titles) == (2, list(names))


def test_a_changed_recording_is_shown_in_place(page: Page, tmp_path: Path) -> None:
    path = write_recording(tmp_path / "host.xplane.pb", steps=4)
    with serving(path, watch=True) as server:
        opened(page, server)
        page.evaluate(f"{VIEW}.setView(60, 90)")
        write_recording(path, steps=40)
        until(
            page, "document.getElementById('facts').textContent", lambda t: "120 device events" in t
        )
        assert page.evaluate(f"[{VIEW}.from, {VIEW}.to]") == [60, 90]
        until(page, f"{VIEW}.end", lambda end: end > 1000)
        until(page, "document.getElementById('notice').textContent", lambda t: "changed" in t)


def test_a_recording_that_breaks_stays_in_view_and_is_marked_as_old(
    page: Page, tmp_path: Path
) -> None:
    path = write_recording(tmp_path / "host.xplane.pb", steps=4)
    old, notice = (f"document.getElementById('{name}').textContent" for name in ("old", "notice"))
    with serving(path, watch=True) as server:
        opened(page, server)
        assert page.evaluate(old) == ""
        path.write_bytes(b"")
        until(page, old, lambda text: re.fullmatch(r"Old: read at \d\d:\d\d:\d\d", text))
        said = page.evaluate(notice)
        assert "can't be read" in said and f"{path} is empty" in said and "record it again" in said
        assert "12 device events" in page.evaluate("document.getElementById('facts').textContent")
        write_recording(path, steps=40)
        until(page, old, lambda text: text == "")
        facts = "document.getElementById('facts').textContent"
        until(page, facts, lambda text: "120 device events" in text)


def test_a_selection_and_search_belong_to_one_reading(page: Page, tmp_path: Path) -> None:
    path = write_recording(tmp_path / "host.xplane.pb", steps=4)
    with serving(path, watch=True) as server:
        opened(page, server)
        page.evaluate(f"{VIEW}.select(0, 0)")
        until(page, "document.getElementById('selected').textContent", lambda t: "dot.1" in t)
        page.fill("input[type=search]", "add")
        until(page, f"{VIEW}.hits.length", lambda count: count == 4)
        write_recording(path, steps=40)
        until(page, f"{VIEW}.hits.length", lambda count: count == 40)
        assert page.evaluate(f"{VIEW}.selected") is None
        assert "dot.1" not in page.evaluate("document.getElementById('selected').textContent")


def test_hits_that_come_after_the_lanes_of_structure_are_kept(page: Page, tmp_path: Path) -> None:
    path = write_recording(tmp_path / "host.xplane.pb", steps=4)
    with serving(path, watch=True) as server:
        opened(page, server)
        page.fill("input[type=search]", "add")
        until(page, f"{VIEW}.hits.length", lambda count: count == 4)
        page.evaluate(
            """() => {
              const ask = window.fetch;
              let extended;
              const structure = new Promise((resolve) => { extended = resolve; });
              window.fetch = async (url) => {
                const answer = await ask(url);
                if (url.startsWith("api/structure")) setTimeout(extended, 200);
                if (url.startsWith("api/search")) await structure;
                return answer;
              };
            }"""
        )
        write_recording(path, steps=40)
        until(page, f"{VIEW}.hits.length", lambda count: count == 40)


def test_a_server_that_ends_is_said_so(page: Page, tmp_path: Path) -> None:
    with serving(write_recording(tmp_path / "host.xplane.pb")) as server:
        opened(page, server)
    until(page, "document.getElementById('notice').textContent", lambda t: "has stopped" in t)


def test_every_recording_opens_and_all_of_them_together(page: Page, data: Path) -> None:
    paths = sorted(data.glob("*.xplane.pb.gz"))
    with serving(*paths) as server:
        opened(page, server)
        members = page.evaluate(
            "[...document.querySelectorAll('#range h3')].map((h) => h.textContent)"
        )
        lanes = page.evaluate(f"{VIEW}.source.lanes.map((lane) => [lane.group, lane.kind])")
        wanted = f"{{ lanes: {VIEW}.source.lanes.map((lane) => lane.id), tops: [] }}"
        everything = f"{VIEW}.source.slices(0, {VIEW}.end, 400, {wanted})"
        sizes = page.evaluate(
            f"{everything}.then((found) => found.lanes.map((l) => l.start.length))"
        )
    names = [path.name.removesuffix(".xplane.pb.gz") for path in paths]
    assert members == names
    shown = {group.split(" · ")[0] for group, kind in lanes if kind == "stream"}
    assert shown == set(names)
    assert len(sizes) == len(lanes) and min(sizes) > 0


def test_perfetto_is_asked_only_by_a_click(page: Page, nccl: Server) -> None:
    opened(page, nccl)
    asked: list[str] = []
    page.evaluate(
        """() => {
          window.posted = [];
          const other = { closed: false, close() {}, postMessage(message, origin) {
            const said = message === "PING" ? "PING" : Object.keys(message.perfetto);
            window.posted.push([said, origin]);
            if (message === "PING") window.dispatchEvent(
              new MessageEvent("message", { data: "PONG", origin: "https://ui.perfetto.dev" }));
            else window.trace = message.perfetto.buffer.byteLength;
          } };
          window.open = (url) => { window.posted.push(["open", url]); return other; };
        }"""
    )
    page.on("request", lambda request: asked.append(request.url))
    page.click("#perfetto")
    assert until(page, "window.trace || 0", lambda size: size > 0) > 10_000
    origin = "https://ui.perfetto.dev"
    posted = page.evaluate("window.posted")
    assert posted[0] == ["open", origin] and ["PING", origin] in posted
    assert posted[-1] == [["buffer", "title", "fileName"], origin]
    # The page may still ask for what is in view; nothing is asked of anyone else.
    own = f"http://127.0.0.1:{nccl.server_port}/api/"
    assert all(url.startswith(own) for url in asked)
    assert sum(url.startswith(f"{own}perfetto") for url in asked) == 1


def test_a_link_leads_to_a_place_of_the_recording(page: Page, nccl: Server) -> None:
    opened(page, nccl, whole=False)
    page.evaluate(f"{VIEW}.setView(5.0e6, 6.2e6)")
    until(page, "location.hash", lambda text: "from=5000000.000" in text)
    page.reload()
    page.wait_for_selector("#timeline[data-structure]")
    assert page.evaluate(f"[{VIEW}.from, {VIEW}.to]") == pytest.approx([5.0e6, 6.2e6])
