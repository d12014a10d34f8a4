"""Takes the pictures of the report that docs/ shows: python scripts/screenshots.py

Needs Playwright and the system's Chromium, as the browser tests do. Look at them before you commit.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from slipstream.diagnosis.diagnose import diagnose
from slipstream.outputs.html.report import write_report
from slipstream.outputs.html.report_data import results
from slipstream.sources.load import load

ROOT = Path(__file__).resolve().parent.parent
DESKTOP = {"width": 1280, "height": 1000}
PHONE = {"width": 390, "height": 844}


def report(name: str, folder: Path) -> str:
    """The address of a recording's page."""
    path = ROOT / "tests" / "data" / f"{name}.xplane.pb.gz"
    profile = load(path)
    write_report(results(profile, path.name, diagnosis=diagnose(profile)), folder / f"{name}.html")
    return (folder / f"{name}.html").as_uri()


def opened(browser: Browser, address: str, **options: object) -> Page:
    page = browser.new_context(reduced_motion="reduce", **options).new_page()
    page.goto(address)
    page.wait_for_timeout(1000)
    return page


def select_a_collective(page: Page) -> None:
    """The timeline, with a collective and what waits for it."""
    page.evaluate("document.getElementById('timeline').scrollIntoView()")
    page.locator("#timeline-view canvas").focus()
    page.keyboard.press("/")
    page.keyboard.type("all-to-all.10.1")
    for key in ("Enter", "Enter", "Enter"):
        page.keyboard.press(key)
        page.wait_for_timeout(500)
    page.locator("#timeline-view canvas").focus()
    page.keyboard.press("f")
    page.wait_for_timeout(500)


def main() -> None:
    target = ROOT / "docs" / "images"
    target.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        program = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        offload, collectives = (report(n, Path(folder)) for n in ("off_default", "nccl2_lhs_r0"))
        opened(browser, offload, viewport=DESKTOP).screenshot(path=target / "report-light.png")
        page = opened(browser, collectives, viewport=DESKTOP, color_scheme="dark")
        select_a_collective(page)
        page.screenshot(path=target / "report-dark.png")
        phone = {"viewport": PHONE, "is_mobile": True, "device_scale_factor": 2}
        opened(browser, offload, **phone).screenshot(path=target / "report-phone.png")
        browser.close()


if __name__ == "__main__":
    main()
