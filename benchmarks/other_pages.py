"""Perfetto's page and XProf's trace viewer in Chromium: first picture, zooms, searches.

Both are served from this machine, as their packages have them. Their own counters say when they
are done: nothing is asked of a background process any more, and no redraw is waiting.
"""

from __future__ import annotations

import shutil
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

from playwright.sync_api import Browser, Page, Request

PATIENCE_MS = 1_800_000
SIZE = {"width": 1600, "height": 900}
ZOOM_STEPS = 8
SETTLED_MS = 10_000
QUIET = """
async () => {
  let quiet = 0;
  while (quiet < 2) {
    await new Promise((done) => requestAnimationFrame(done));
    const trace = window.app && window.app.trace;
    const busy = !trace || app.isLoadingTrace || trace.engine.engine.numRequestsPending > 0
      || app.raf.hasPendingRedraws;
    quiet = busy ? 0 : quiet + 1;
  }
}
"""
EXPAND = """
() => {
  for (const node of app.trace.workspace.flatTracks)
    if ((node.name || "").startsWith("GPU:")) node.expand();
  app.raf.scheduleFullRedraw();
}
"""
# Windows of the same sizes and places as in `view.py`.
ZOOM = """
async (count) => {
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const trace = app.trace;
  const first = Number(trace.traceInfo.start), whole = Number(trace.traceInfo.end) - first;
  let seed = 1;
  const random = () => (seed = (seed * 16807) % 2147483647) / 2147483647;
  const times = [];
  for (let i = 0; i < count; i++) {
    const span = whole / Math.pow(10, 6 * random());
    const from = first + random() * (whole - span);
    await frame();
    await frame();
    const began = performance.now();
    trace.timeline.setViewportTime(BigInt(Math.round(from)), BigInt(Math.round(from + span)));
    do await frame();
    while (trace.engine.engine.numRequestsPending > 0 || app.raf.hasPendingRedraws);
    times.push(performance.now() - began);
  }
  return times;
}
"""
SEARCH = """
async (texts) => {
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const search = app.trace.search, times = [];
  for (const text of texts) {
    const began = performance.now();
    search.search(text);
    do await frame();
    while (search.searchInProgress || app.trace.engine.engine.numRequestsPending > 0
      || app.raf.hasPendingRedraws);
    times.push([text, performance.now() - began, (search.searchResults || {}).totalResults || 0]);
  }
  return times;
}
"""


def launch_options() -> dict[str, Any]:
    """How Playwright starts the Chromium that is installed."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    return {"executable_path": chromium, "args": ["--no-sandbox", "--disable-dev-shm-usage"]}


class Pages(SimpleHTTPRequestHandler):
    """Perfetto's page, and the trace beside it."""

    trace: Path

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def translate_path(self, path: str) -> str:
        if path.split("?")[0] == "/trace.pftrace":
            return str(self.trace)
        return super().translate_path(path)


@contextmanager
def _perfetto_served(folder: Path, trace: Path) -> Iterator[str]:
    handler = partial(type("Served", (Pages,), {"trace": trace}), directory=str(folder))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()


def perfetto(
    browser: Browser, folder: Path, trace: Path, zooms: int, texts: Sequence[str]
) -> dict[str, float]:
    """Perfetto's own page on a trace that it can read."""
    context = browser.new_context(viewport=SIZE, service_workers="block")
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    with _perfetto_served(folder, trace) as address:
        began = time.perf_counter()
        page.goto(f"{address}/#!/?url={address}/trace.pftrace")
        page.evaluate(QUIET)
        first = time.perf_counter() - began
        page.evaluate(EXPAND)
        page.evaluate(QUIET)
        times = sorted(page.evaluate(ZOOM, zooms))
        searches = page.evaluate(SEARCH, list(texts))
    version = page.evaluate("JSON.parse(document.body.dataset.perfetto_version).stable")
    context.close()
    print(f"Perfetto's page {version} on {trace.stat().st_size / 1e6:,.0f} MB")
    print(f"  first view {first:.2f} s")
    print(f"  zoom, painted median {statistics.median(times):.1f} ms, 95% below "
          f"{times[int(0.95 * len(times))]:.1f} ms")  # fmt: skip
    _show_searches(searches)
    return {
        "first view seconds": first,
        "zoom painted median ms": statistics.median(times),
        "zoom painted 95% ms": times[int(0.95 * len(times))],
        "search median ms": statistics.median(ms for _, ms, _ in searches),
        "search slowest ms": max(ms for _, ms, _ in searches),
    }


def _show_searches(searches: Sequence[tuple[str, float, int]]) -> None:
    median = statistics.median(ms for _, ms, _ in searches)
    print(f"  search, painted median {median:.1f} ms; " + ", ".join(
        f"{text!r} {ms:.0f} ms, {hits:,} hits" for text, ms, hits in searches
    ))  # fmt: skip


@contextmanager
def xprof_served(logs: Path) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "xprof.server", "--logdir", str(logs), "--port", str(port)]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, stdout=quiet, stderr=quiet)
    address = f"http://localhost:{port}/data/plugin/profile"
    try:
        _wait_for(f"{address}/runs")
        yield address
    finally:
        process.terminate()
        process.wait()


def _wait_for(url: str, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while True:
        try:
            urlopen(url).read()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)
        else:
            return


class Answers:
    """Requests for events of a trace, and when the last of them was answered."""

    def __init__(self, page: Page) -> None:
        self.asked, self.done, self.last = 0, 0, 0.0
        page.on("request", self._asked)
        page.on("requestfinished", self._done)

    def _asked(self, request: Request) -> None:
        self.asked += self._is_for_events(request)

    def _done(self, request: Request) -> None:
        if self._is_for_events(request):
            self.done += 1
            self.last = time.perf_counter()

    @staticmethod
    def _is_for_events(request: Request) -> bool:
        """Not for the details of what a click selected."""
        return "tag=trace_viewer" in request.url and "event_name=" not in request.url

    def wait(self, page: Page, began: float, patience: float = 60.0) -> float | None:
        """Milliseconds until the last answer; None if nothing was asked."""
        before = self.asked
        while self.asked == before and time.perf_counter() - began < patience:
            page.wait_for_timeout(20)
        while self.done < self.asked:
            page.wait_for_timeout(20)
        return 1000 * (self.last - began) if self.last > began else None


def xprof(browser: Browser, logs: Path, text: str) -> dict[str, Any]:
    """XProf's own page, which shows a streamed trace: `logs` holds one run of host `host`."""
    with xprof_served(logs) as address:
        page = browser.new_page(viewport=SIZE)
        page.set_default_timeout(PATIENCE_MS)
        answers = Answers(page)
        tool = quote("trace_viewer@")
        began = time.perf_counter()
        page.goto(f"{address}/trace_viewer@?run=run&tag={tool}&host=host")
        inside = page.frame_locator("iframe")
        inside.get_by_text("XLA Modules").first.wait_for()
        first = time.perf_counter() - began
        page.wait_for_timeout(SETTLED_MS)
        box = page.locator("iframe").bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 200)
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 200)
        page.wait_for_timeout(1000)
        began = time.perf_counter()
        for _ in range(ZOOM_STEPS):
            page.keyboard.press("w")
            page.wait_for_timeout(50)
        zoom = answers.wait(page, began)
        field = inside.get_by_placeholder("Find Events")
        field.fill(text)
        began = time.perf_counter()
        field.press("Enter")
        search = answers.wait(page, began)
        page.close()
    said = ["nothing was asked" if ms is None else f"{ms:,.0f} ms" for ms in (zoom, search)]
    print(f"XProf's page, trace_viewer@: first view {first:.1f} s")
    print(f"  until the last answer: a zoom {said[0]}, a search for {text!r} {said[1]}")
    return {"first view seconds": first, "zoom ms": zoom, "search ms": search}
