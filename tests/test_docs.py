"""The docs: every page in the navigation, every link resolves, every command in them exists."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path

import pytest
import typer.main

from slipstream.cli.command_tree import command_tree
from slipstream.cli.main import app

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
TOP = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")]
FENCED = re.compile(r"^(```+)[^\n]*\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
INLINE = re.compile(r"`([^`\n]+)`")


def title(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def prose(page: Path) -> str:
    return FENCED.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """What a repository's page can be linked to: its headings in lower case, with dashes."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        found.add(next(s for n in range(99) if (s := f"{slug}-{n}" if n else slug) not in found))
    return found


def test_every_page_is_in_the_navigation_once() -> None:
    spec = importlib.util.spec_from_file_location("docs_conf", DOCS / "conf.py")
    assert spec is not None and spec.loader is not None
    conf = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(conf)
    parts = conf.navigation((DOCS / "index.md").read_text(encoding="utf-8"))
    listed = [page for pages in parts.values() for page in pages]
    there = [page.relative_to(DOCS).with_suffix("").as_posix() for page in PAGES]
    assert sorted([*listed, "index"]) == sorted(there)


@pytest.mark.parametrize("page", [*TOP, *PAGES], ids=title)
def test_relative_links_resolve(page: Path) -> None:
    broken = []
    for link in LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        is_there = target.is_relative_to(ROOT) and target.exists()
        if not is_there or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def commands_of(page: Path) -> list[str]:
    """What a reader would type: lines of blocks, and code in sentences and tables."""
    text = re.sub(r" \\\n\s*", " ", page.read_text(encoding="utf-8"))
    blocks = "\n".join(block for _, block in FENCED.findall(text))
    lines = re.findall(r"^(?:\$ )?(slipstream [^\n#|>]*)", blocks, re.MULTILINE)
    return lines + [one for one in INLINE.findall(FENCED.sub("", text)) if is_command(one)]


def is_command(text: str) -> bool:
    return text.startswith("slipstream ") and "…" not in text


TREE = command_tree(typer.main.get_command(app), ["slipstream"])


def unknown(command: str) -> list[str]:
    """The words of a command that the command line doesn't have: commands and options."""
    try:
        words = shlex.split(command.partition(" -- ")[0])[1:]
    except ValueError:
        return []  # a quote that goes on in the next line
    node = TREE
    while words and (below := {one["name"]: one for one in node["commands"]}):
        if words[0] not in below:
            break
        node = below[words.pop(0)]
    if node["commands"] and node["default"]:
        node = next(one for one in node["commands"] if one["name"] == node["default"])
    elif node["commands"] and words and re.fullmatch("[a-z]+", words[0]):
        return [words[0]]
    flags = {flag for one in node["parameters"] for flag in (*one["flags"], *one["off_flags"])}
    given = {word.partition("=")[0] for word in words if re.match("--?[a-z]", word)}
    # Values of --flags are flags themselves; every command has help, also as JSON.
    given = {word for word in given if not word.startswith("--xla_")}
    return sorted(given - flags - {"--help", "--json"})


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=title)
def test_commands_in_the_docs_exist(page: Path) -> None:
    wrong = {command: words for command in commands_of(page) if (words := unknown(command))}
    assert wrong == {}


def test_a_wrong_command_would_be_noticed() -> None:
    assert unknown("slipstream summry PATH") == ["summry"]
    assert unknown("slipstream ops PATH --topp 3") == ["--topp"]
    assert unknown("slipstream costs PATH -o costs.pb") == []
    assert unknown("slipstream flags lint train.sh --fix") == []
