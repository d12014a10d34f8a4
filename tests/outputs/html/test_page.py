"""The shell: all it needs is inside it, and it asks nothing of anyone."""

import base64
import hashlib
import re
from pathlib import Path

import slipstream.outputs.html as pages
from slipstream.outputs.html.markup import Html, tag
from slipstream.outputs.html.page import Page, Section, asset, page

ASSETS = sorted((Path(pages.__file__).parent / "assets").iterdir())


def small() -> str:
    section = Section("one", "The <one>", tag("p", "text"), "What it says.", "3")
    return page(Page("t & t", "Head", ["a fact", ""], [section], {"x": "</script>"}))


def hashes(text: str, element: str) -> set[str]:
    parts = re.findall(rf"<{element}>(.*?)</{element}>", text, re.DOTALL)
    digests = (hashlib.sha256(part.encode()).digest() for part in parts)
    return {f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests}


def test_the_policy_allows_what_is_inside_and_nothing_else():
    text = small()
    found = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert found is not None
    rules = dict(rule.strip().split(" ", 1) for rule in found[1].replace("&#x27;", "'").split(";"))
    assert rules["default-src"] == "'none'"
    assert set(rules["script-src"].split()) == hashes(text, "script")
    assert set(rules["style-src"].split()) == hashes(text, "style")
    assert rules["img-src"] == "data:"
    assert len(hashes(text, "script")) == 2


def test_nothing_comes_from_elsewhere():
    """Neither the shell nor any asset names something to load, and no style is in an attribute."""
    assert re.findall(r'\b(?:src|href)="(?!#|data:)[^"]*"', small()) == []
    assert ' style="' not in small()
    for path in ASSETS:
        text = path.read_text(encoding="utf-8")
        assert re.findall(r"@import|url\(|importScripts|\beval\(", text) == [], path.name
        known = {"http://www.w3.org/2000/svg"}
        if not path.name.startswith("viewer"):
            assert set(re.findall(r"https?://[^\s\"'`)]+", text)) <= known, path.name


def test_what_a_page_says():
    text = small()
    assert text.startswith('<!doctype html>\n<html lang="en">')
    assert "<title>t &amp; t</title>" in text
    assert '<a href="#one"><span>The &lt;one&gt;</span><span class="badge">3</span></a>' in text
    assert '<section id="one" aria-labelledby="one-title">' in text
    assert text.count("<li>a fact</li>") == 1 and "<li></li>" not in text
    assert (
        '<script type="application/json" id="data">{"x":"\\u003c/script\\u003e"}</script>' in text
    )


def test_assets_can_stand_inside_an_element():
    assert isinstance(small(), str) and all(asset(path.name) for path in ASSETS)
    assert isinstance(tag("p"), Html)
