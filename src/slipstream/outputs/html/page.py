"""The shell of every page: head, contents, sections, footer, in one self-contained file.

The content security policy in the head forbids all network access, and allows only the scripts
and styles whose hashes it lists.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from typing import Any

from slipstream.outputs.html.markup import Html, embedded, join, tag

STYLES = ("theme.css", "page.css")
SCRIPTS = ("page.js",)
TIMELINE_STYLE = "timeline.css"
TIMELINE_SCRIPTS = (
    "labels.js",
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
"""the timeline, in the order in which a page loads it; `assets/timeline.js` says how to use it"""
THEME_SCRIPT = "theme.js"
"""runs before anything is drawn, so that a dark page does not flash"""
KEYS = (
    ("j", "next section"),
    ("k", "previous section"),
    ("t", "light or dark"),
    ("?", "show keys"),
)


@dataclass(frozen=True)
class Section:
    """One part of a page: a heading, a leading sentence, and the body."""

    id: str
    title: str
    body: Html
    lede: Html | str = ""
    badge: str = ""
    """a count beside the title in the contents"""


@dataclass(frozen=True)
class Page:
    """The content of a page; `page` turns it into HTML."""

    title: str
    """for tabs and bookmarks"""
    heading: str
    facts: Sequence[str]
    """a few words each, below the heading"""
    sections: Sequence[Section]
    data: Any = None
    """JSON for the scripts, in the element `data`"""
    styles: Sequence[str] = ()
    scripts: Sequence[str] = ()
    """assets in addition to the shell's own, in order"""
    keys: Sequence[tuple[str, str]] = ()
    attributes: Mapping[str, str] = field(default_factory=dict)
    """of the body"""


def notes_of(notes: Sequence[str]) -> Html:
    """Notes on the numbers of a section."""
    return join(
        tag("p", f"{note[:1].upper()}{note[1:]}".rstrip(".") + ".", class_="note") for note in notes
    )


def page(content: Page) -> str:
    """The whole file."""
    style = "\n".join(asset(name) for name in (*STYLES, *content.styles))
    script = "\n".join(asset(name) for name in (*SCRIPTS, *content.scripts))
    first = asset(THEME_SCRIPT)
    head = (
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy(style, first, script)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="generator", content=f"slipstream {_version()}".strip()),
        tag("title", content.title),
        tag("link", rel="icon", href="data:,"),
        Html(f"<style>{style}</style><script>{first}</script>"),
    )
    parts = [tag("a", "Skip to content", href="#content", class_="skip"), _shell(content)]
    parts.append(_keys(content.keys))
    if content.data is not None:
        parts.append(tag("script", embedded(content.data), type="application/json", id="data"))
    parts.append(Html(f"<script>{script}</script>"))
    body = tag("body", parts, **content.attributes)
    return "<!doctype html>\n" + tag("html", tag("head", head), "\n", body, lang="en") + "\n"


@cache
def asset(name: str) -> str:
    """The text of a style sheet or script in this package."""
    text = (files("slipstream.outputs.html") / "assets" / name).read_text(encoding="utf-8")
    if "</script" in text.lower() or "</style" in text.lower():
        raise AssertionError(f"{name} would end the element that holds it")
    return text


def _policy(style: str, *scripts: str) -> str:
    allowed = " ".join(_hash(script) for script in scripts)
    return (
        f"default-src 'none'; style-src {_hash(style)}; script-src {allowed}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def _shell(content: Page) -> Html:
    entries = [
        tag(
            "li",
            tag(
                "a",
                tag("span", section.title),
                tag("span", section.badge, class_="badge") if section.badge else None,
                href=f"#{section.id}",
            ),
        )
        for section in content.sections
    ]
    tools = tag(
        "div",
        tag("button", "Dark", type="button", class_="button theme", aria_label="Dark colours"),
        tag("button", "Keys", type="button", class_="button keys", aria_haspopup="dialog"),
        class_="tools",
    )
    side = tag(
        "header",
        tag("div", MARK, tag("span", "slipstream"), class_="mark"),
        tag("nav", tag("ol", entries), aria_label="Contents"),
        tools,
        class_="side",
    )
    facts = tag("ul", [tag("li", fact) for fact in content.facts if fact], class_="facts")
    top = tag("div", tag("h1", content.heading), facts, class_="top")
    foot = tag(
        "footer",
        f"Made by slipstream {_version()}".strip(),
        ". This page is self-contained and makes no network requests.",
        class_="foot",
    )
    main = tag("main", top, map(_section, content.sections), foot, id="content", tabindex=-1)
    return tag("div", side, main, class_="shell")


def _section(section: Section) -> Html:
    lede = tag("p", section.lede, class_="lede") if section.lede else None
    heading = tag("h2", section.title, id=f"{section.id}-title")
    return tag(
        "section", heading, lede, section.body, id=section.id, aria_labelledby=f"{section.id}-title"
    )


def _keys(more: Sequence[tuple[str, str]]) -> Html:
    rows = [
        (tag("dt", join([tag("kbd", key), " "] for key in keys.split())), tag("dd", what))
        for keys, what in (*KEYS, *more)
    ]
    return tag(
        "dialog",
        tag("h2", "Keys", id="keys-title"),
        tag("dl", rows, class_="pairs"),
        id="keys",
        aria_labelledby="keys-title",
    )


def _version() -> str:
    try:
        return version("slipstream")
    except PackageNotFoundError:
        return ""


# Two streams, the second in the slipstream of the first.
MARK = Html(
    '<svg viewBox="0 0 22 14" aria-hidden="true"><rect x="0" y="1" width="15" height="5" rx="2" '
    'class="fill-accent"/><rect x="7" y="8" width="15" height="5" rx="2" '
    'class="fill-communication"/></svg>'
)
