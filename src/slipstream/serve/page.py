"""The viewer's page, and the scripts and styles it loads from its server."""

from __future__ import annotations

from slipstream.outputs.html.markup import Html, tag
from slipstream.outputs.html.page import (
    MARK,
    THEME_SCRIPT,
    TIMELINE_SCRIPTS,
    TIMELINE_STYLE,
    asset,
)

VIEWER_STYLES = ("theme.css", TIMELINE_STYLE, "viewer.css")
VIEWER_SCRIPTS = (
    *TIMELINE_SCRIPTS,
    "viewer_source.js",
    "viewer_perfetto.js",
    "share.js",
    "viewer.js",
    "page.js",
)
SCRIPT, STYLES = "viewer.js", "viewer.css"
"""all scripts and all styles, each as one file, to save requests before the first view"""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
KEYS = (
    ("w s", "zoom in, zoom out"),
    ("a d", "pan left, right"),
    ("↑ ↓", "scroll the lanes"),
    ("f", "show everything"),
    ("n", "HLO names, or what they do"),
    ("z", "zoom to the selection"),
    (", .", "previous slice, next slice"),
    ("/", "search; Enter goes to the next match"),
    ("Esc", "clear the selection"),
    ("t", "light or dark"),
)


def assets() -> dict[str, tuple[str, str]]:
    """Every asset by name: (type, text)."""
    return {
        THEME_SCRIPT: ("text/javascript", asset(THEME_SCRIPT)),
        SCRIPT: ("text/javascript", "\n".join(map(asset, VIEWER_SCRIPTS))),
        STYLES: ("text/css", "\n".join(map(asset, VIEWER_STYLES))),
    }


def viewer_page() -> str:
    """The page; its scripts load the data."""
    head = (
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", "Slipstream"),
        tag("link", rel="icon", href="data:,"),
        tag("link", rel="stylesheet", href=f"assets/{STYLES}"),
        tag("script", src=f"assets/{THEME_SCRIPT}"),
        tag("script", src=f"assets/{SCRIPT}", defer=True),
    )
    body = tag("body", _header(), _main(), _keys())
    return "<!doctype html>\n" + tag("html", tag("head", head), "\n", body, lang="en") + "\n"


def _header() -> Html:
    tools = (
        tag("button", "Open in Perfetto", type="button", id="perfetto", class_="button",
            title="Opens ui.perfetto.dev in a new tab and sends it the visible range"),
        tag("button", "Dark", type="button", class_="button theme", aria_label="Dark colours"),
        tag("button", "Keys", type="button", class_="button keys", aria_haspopup="dialog"),
    )  # fmt: skip
    return tag(
        "header",
        tag("div", MARK, tag("span", "slipstream"), class_="mark"),
        tag("h1", "Reading…", id="title"),
        tag("ul", id="facts", class_="facts"),
        tag("span", id="old", class_="old-mark", role="status"),
        tag("span", id="notice", class_="notice", role="status"),
        tag("div", tools, class_="tools"),
        class_="head",
    )


def _main() -> Html:
    side = tag(
        "aside",
        tag("section", tag("h2", "Selected"), tag("div", id="selected"), aria_label="Selected"),
        tag("section", tag("h2", "In view", id="range-title"), tag("div", id="range"),
            aria_labelledby="range-title"),
        id="side",
        aria_label="Details",
    )  # fmt: skip
    return tag("main", tag("div", id="timeline"), side, id="content")


def _keys() -> Html:
    rows = [
        (tag("dt", [tag("kbd", key) for key in keys.split()]), tag("dd", what))
        for keys, what in KEYS
    ]
    return tag(
        "dialog",
        tag("h2", "Keys", id="keys-title"),
        tag("dl", rows),
        tag("p", "Wheel or pinch zooms, drag pans, Shift-drag measures a time range."),
        id="keys",
        aria_labelledby="keys-title",
    )
