"""HTML from Python: text is escaped unless its type says that it is HTML."""

from __future__ import annotations

import json
from collections.abc import Iterable
from html import escape
from typing import Any

VOID = frozenset(("br", "col", "hr", "img", "input", "link", "meta", "path", "rect", "line"))


class Html(str):
    """Text that is already HTML; all other text is escaped."""

    __slots__ = ()


Child = str | Iterable["Child"] | None
Attribute = str | int | float | bool | None


def tag(element: str, /, *children: Child, **attributes: Attribute) -> Html:
    """An element: `tag("td", "3 < 4", class_="number", data_value=3)`.

    `_` in an attribute's name becomes `-`; a trailing `_` is dropped, for Python's keywords. None
    and False omit an attribute, True writes it without a value.
    """
    head = element + "".join(_attribute(key, value) for key, value in attributes.items())
    if element in VOID and not children:
        return Html(
            f"<{head}>" if element in ("br", "hr", "meta", "link", "input") else f"<{head}/>"
        )
    return Html(f"<{head}>{join(children)}</{element}>")


def join(children: Child) -> Html:
    """Children, concatenated."""
    if children is None:
        return Html("")
    if isinstance(children, Html):
        return children
    if isinstance(children, str):
        return Html(escape(children, quote=False))
    return Html("".join(join(child) for child in children))


def _attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return f' {name}="{escape(text)}"'


def embedded(data: Any) -> Html:
    """JSON as the content of a script element: nothing in it can end the element or the line."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Html(text)
