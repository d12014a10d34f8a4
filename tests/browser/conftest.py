"""Real Chromium for the pages: a page that logs an error or asks for anything outside fails."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page, Playwright, Request

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
# The sandbox needs rights that a container lacks; a shared-memory folder of 64 MB is too small.
OPTIONS = ["--no-sandbox", "--disable-dev-shm-usage", "--force-color-profile=srgb"]
PATIENCE_MS = 200_000
START_MS = 60_000


# Not for the whole session: while it is open, no other test of the process can use asyncio.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium for the tests of a file, the system's own: none is downloaded."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        pytest.skip("no playwright: pip install 'slipstream[test]'")
    program = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if program is None:
        pytest.skip("no chromium: apt-get install chromium (`make test` does, where it may)")
    with sync_playwright() as playwright:
        launched = _launched(playwright, program)
        yield launched
        launched.close()


def _launched(playwright: Playwright, program: str) -> Browser:
    """On a busy machine Chromium sometimes dies or hangs while it starts: that is tried again."""
    from playwright.sync_api import Error

    for _ in range(3):
        try:
            return playwright.chromium.launch(
                executable_path=program, args=OPTIONS, timeout=START_MS
            )
        except Error as error:
            problem = error
    raise problem


class Watch:
    """What a page did that it must not do."""

    def __init__(self, page: Page) -> None:
        self.troubles: list[str] = []
        self._page = page
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.troubles.append(f"error: {error}"))
        page.on("request", self._asked)

    def _said(self, message: ConsoleMessage) -> None:
        # 409: a question about a reading that was just replaced. The page asks again.
        if message.type in ("error", "warning") and "409 (Conflict)" not in message.text:
            self.troubles.append(f"console: {message.text}")

    def _asked(self, request: Request) -> None:
        """A page may ask for itself, for what it holds, and of its own server on this machine."""
        asked, own = urlsplit(request.url), urlsplit(self._page.url)
        if asked.scheme in ("data", "blob", "about"):
            return
        is_local = asked.scheme == "file" or asked.hostname in ("127.0.0.1", "localhost")
        is_own = asked.scheme != "file" and asked.netloc == own.netloc
        if not is_local or not (is_own or request.is_navigation_request()):
            self.troubles.append(f"request: {request.url}")


@contextmanager
def watched_page(browser: Browser, **options: Any) -> Iterator[Page]:
    """A page of its own; fails on errors in its console and on requests that leave it."""
    context = browser.new_context(**options)
    try:
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        watch = Watch(page)
        yield page
    finally:
        context.close()
    assert watch.troubles == []


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of 1280 by 800 pixels, light."""
    with watched_page(browser, viewport={"width": 1280, "height": 800}) as made:
        yield made


@pytest.fixture
def phone(browser: Browser) -> Iterator[Page]:
    """A page of 390 by 844 pixels with touch, light."""
    size = {"width": 390, "height": 844}
    with watched_page(browser, viewport=size, has_touch=True, is_mobile=True) as made:
        yield made


@pytest.fixture
def dark(browser: Browser) -> Iterator[Page]:
    """A page of 1280 by 800 pixels on a system that likes it dark."""
    size = {"width": 1280, "height": 800}
    with watched_page(browser, viewport=size, color_scheme="dark") as made:
        yield made
