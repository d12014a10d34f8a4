"""The timeline's scripts and styles, in the order in which a page loads them."""

from __future__ import annotations

from pathlib import Path

SCRIPTS = (
    "timeline_time.js",
    "timeline_memory.js",
    "timeline_colours.js",
    "timeline_axis.js",
    "timeline_paint.js",
    "timeline_input.js",
    "timeline_panel.js",
    "timeline_answers.js",
    "timeline_select.js",
    "timeline.js",
)
STYLE = "timeline.css"

_ASSETS = Path(__file__).parent / "assets"


def timeline_script() -> str:
    """Defines `window.SlipstreamTimeline`; see `assets/timeline.js` for how to use it."""
    return "\n".join((_ASSETS / name).read_text(encoding="utf-8") for name in SCRIPTS)


def timeline_style() -> str:
    """The timeline's style sheet; colours are those of the page's theme."""
    return (_ASSETS / STYLE).read_text(encoding="utf-8")
