"""How fast a large recording is a report, and how fluid its page is in Chromium.

Two recordings of 80 MB, made from a real one: hundreds of steps of hundreds of events, and one step
of everything, which is the largest page there is. For each: `slipstream report` from its start to
its end (the median of three), the size of the page, what Chromium takes from opening the file to
the first paint and to the timeline, and frames while the timeline zooms and pans: how far apart
they are, and how long each is drawn. `--json FILE` also writes the figures to FILE.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from make_recording import DATA, make_recording
from playwright.sync_api import Browser, sync_playwright

EVENTS = 690_000
STARTS = 3
FRAMES = 240
REPORT = "import sys; from slipstream.cli.main import main; main()"
PAINT = """
performance.getEntriesByType("paint").find((one) => one.name === "first-contentful-paint").startTime
"""
# A frame's callbacks run in order: the timeline's, then ours, which sees how long the drawing took.
MOVES = """
async (count) => {
  const { view } = SlipstreamReport;
  const whole = view.end - view.start;
  const frame = () =>
    new Promise((done) => requestAnimationFrame((at) => done([at, performance.now()])));
  document.getElementById("timeline").scrollIntoView();
  await frame();
  const times = [];
  let [last] = await frame();
  for (let i = 0; i < count; i++) {
    // In to a thousandth of the step and out again, panning all the while.
    const span = whole * Math.pow(10, -1.5 * (1 - Math.cos((4 * Math.PI * i) / count)));
    const from = view.start + (whole - span) * (0.5 + 0.4 * Math.sin((6 * Math.PI * i) / count));
    view.setView(from, from + span);
    const [at, done] = await frame();
    times.push([at - last, done - at]);
    last = at;
  }
  return times;
}
"""


def written(recording: Path, page: Path) -> float:
    """Seconds of `slipstream report`: the median of some runs."""
    took = []
    for _ in range(STARTS):
        began = time.perf_counter()
        command = [sys.executable, "-c", REPORT, "report", str(recording), "-o", str(page)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        took.append(time.perf_counter() - began)
    return statistics.median(took)


def opened(browser: Browser, page_file: Path) -> dict[str, float]:
    """Milliseconds until the page is painted and ready, and of frames while it moves."""
    page = browser.new_page(viewport={"width": 1600, "height": 900})
    page.goto(page_file.as_uri())
    page.wait_for_selector("#timeline-view[data-ready]")
    ready = page.evaluate("performance.now()")
    found = {"first paint ms": page.evaluate(PAINT), "ready ms": ready}
    times = page.evaluate(MOVES, FRAMES)
    page.close()
    for name, column in (("frame", 0), ("drawn", 1)):
        values = sorted(row[column] for row in times)
        found[f"{name} median ms"] = statistics.median(values)
        found[f"{name} 95% ms"] = values[int(0.95 * len(values))]
    return found


def show(name: str, found: dict[str, float]) -> None:
    print(f"{name}: {found['MB']:.0f} MB, {found['events']:,} device events")
    print(f"  written in {found['seconds']:.1f} s, page of {found['page kB']:.0f} kB")
    print(f"  first paint {found['first paint ms']:.0f} ms, ready {found['ready ms']:.0f} ms")
    for what, text in (("frame", "a frame every"), ("drawn", "drawn in")):
        median, most = (found[f"{what} {part} ms"] for part in ("median", "95%"))
        print(f"  zooming and panning: {text} {median:.1f} ms, 95% below {most:.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", metavar="FILE", help="also write the figures to FILE")
    options = parser.parse_args()
    source, figures = DATA / "off_lhs_nocb.xplane.pb.gz", {}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("google-chrome"),
            args=["--no-sandbox", "--disable-dev-shm-usage"],
        )
        browser.new_page().goto("about:blank")
        page = Path(folder) / "report.html"
        written(source, page)  # compiles what a first use of this installation compiles
        for name, is_one in (("many steps", False), ("one step", True)):
            recording = Path(folder) / "host.xplane.pb"
            events = make_recording(source, recording, EVENTS, one_step=is_one)
            found: dict[str, Any] = {"MB": recording.stat().st_size / 1e6, "events": events}
            found["seconds"] = written(recording, page)
            found["page kB"] = page.stat().st_size / 1e3
            found |= opened(browser, page)
            show(name, found)
            figures[name] = found
        browser.close()
    if options.json:
        Path(options.json).write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
