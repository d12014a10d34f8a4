"""How Sphinx makes a site of these pages: `make site`, then open build/site/index.html.

The pages are plain Markdown, and read as well in the repository. The navigation is index.md itself:
each of its headings is a part, and each link of a list below it is a page of that part.
"""

import re
from importlib import metadata
from pathlib import Path

project = "Slipstream"
author = "The Slipstream authors"
release = metadata.version("slipstream")

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["schemas"]
# Links to headings work as they do in a repository: the heading's words, with dashes.
myst_heading_anchors = 4
suppress_warnings = ["myst.header"]

html_theme = "furo"
html_title = f"Slipstream {release}"
html_show_copyright = False
html_theme_options = {"sidebar_hide_name": False}
# Blocks without a language are what a terminal shows.
highlight_language = "text"

DOCS = Path(__file__).resolve().parent
HEADING = re.compile(r"^## (.+)$")
PAGE_LINK = re.compile(r"^- \[([^\]]+)\]\(([\w./-]+)\.md\)")
OTHER_MARKDOWN = re.compile(r"\]\((\.\./[\w./-]+\.md)(#[\w-]+)?\)")


def navigation(text: str) -> dict[str, dict[str, str]]:
    """The parts of the site, {page: title} each, from the headings and lists of index.md."""
    parts: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        if heading := HEADING.match(line):
            parts[heading[1]] = {}
        elif link := PAGE_LINK.match(line):
            parts[list(parts)[-1]][link[2]] = link[1]
    return parts


def prepare(app, docname: str, source: list[str]) -> None:
    """A page as Sphinx wants it: index.md with a menu, Markdown from outside docs/ as a file."""
    folder = (DOCS / docname).parent

    def link(found: re.Match[str]) -> str:
        inside = (folder / found[1]).resolve().is_relative_to(DOCS)
        return found[0] if inside else f"](path:{found[1]})"

    source[0] = OTHER_MARKDOWN.sub(link, source[0])
    if docname == "index":
        for part, pages in navigation(source[0]).items():
            menu = [f"{title} <{page}>" for page, title in pages.items()]
            lines = [f":caption: {part}", ":hidden:", ":titlesonly:", "", *menu]
            source[0] += "\n```{toctree}\n" + "\n".join(lines) + "\n```\n"


def setup(app) -> dict[str, bool]:
    app.connect("source-read", prepare)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
