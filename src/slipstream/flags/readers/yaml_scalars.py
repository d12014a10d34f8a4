"""Scalars of a YAML document, each character with its position in the file.

PyYAML's nodes know where a scalar starts and ends.  In between, YAML folds lines, strips
indentation and replaces escapes:

    file    XLA_FLAGS: "--a=\"1\"⏎      --b=2"
    value                --a= "1 "·      --b=2         the line break became a space
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from slipstream.flags.readers.source_map import MappedText, MappedTextBuilder

if TYPE_CHECKING:
    from yaml import ScalarNode

_PROPERTIES = re.compile(r"(?:[&!]\S*(?:\s+|$)(?:#[^\n]*\s+)*)*")
_GAPS = " \n\x85\u2028\u2029"
_BREAK = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
_ESCAPE = re.compile(r"\\(?:x(..)|u(.{4})|U(.{8})|(.))")
_ESCAPES = {
    "0": "\0", "a": "\a", "b": "\b", "t": "\t", "\t": "\t", "n": "\n", "v": "\v", "f": "\f",
    "r": "\r", "e": "\x1b", "N": "\x85", "_": "\xa0", "L": "\u2028", "P": "\u2029",
}  # fmt: skip


def mapped_scalar(node: ScalarNode, text: str, base: int = 0) -> MappedText | None:
    """A scalar of the YAML in `text[base:]`; None if its characters can't be located."""
    value: str = node.value
    end = node.end_mark.index + base
    start = _after_properties(text, node.start_mark.index + base, end)
    if node.style in ("|", ">"):
        lines = _block_lines(value, text, start, end)
    elif node.style == '"':
        lines = _double_quoted_lines(text, start + 1, end - 1)
    elif node.style == "'":
        lines = _single_quoted_lines(text, start + 1, end - 1)
    else:
        lines = _flow_lines(text, start, end)
    found = MappedTextBuilder()
    for line in lines:
        # Between two lines, YAML puts a space, line breaks, or nothing.
        at = len(found.characters)
        next_line = value.find(line.text, at)
        if next_line < 0 or value[at:next_line].strip(_GAPS):
            return None
        found.add_replacement(value[at:next_line], line.offsets[0])
        found.extend(line)
    if value[len(found.characters) :].strip(_GAPS):
        return None
    found.add_replacement(value[len(found.characters) :], max(start, end - 1))
    return found.build()


def _after_properties(text: str, start: int, end: int) -> int:
    """Where the scalar itself starts: a node's anchor and tag belong to the node."""
    match = _PROPERTIES.match(text, start, end)
    return match.end() if match else start


def _lines(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Start and end of each line of `text[start:end]`, without its break."""
    for match in _BREAK.finditer(text, start, end):
        yield start, match.start()
        start = match.end()
    yield start, end


def _block_lines(value: str, text: str, start: int, end: int) -> Iterator[MappedText]:
    """The lines of a literal (`|`) or folded (`>`) scalar, below its header."""
    _, *lines = _lines(text, start, end)
    filled = [text[a:b] for a, b in lines if text[a:b].strip(" ")]
    shown = [line for line in _BREAK.split(value) if line.strip(" ")]
    if not filled or not shown:
        return
    indent = _indent(filled[0]) - _indent(shown[0])
    for a, b in lines:
        if a + indent < b:
            yield MappedText.verbatim(text[a + indent : b], a + indent)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _flow_lines(text: str, start: int, end: int) -> Iterator[MappedText]:
    """The lines of a plain or quoted scalar, without the blanks around line breaks."""
    lines = list(_lines(text, start, end))
    for number, (a, b) in enumerate(lines):
        if number > 0:
            a = b - len(text[a:b].lstrip(" \t"))
        if number < len(lines) - 1:
            b = a + len(text[a:b].rstrip(" \t"))
        if a < b:
            yield MappedText.verbatim(text[a:b], a)


def _single_quoted_lines(text: str, start: int, end: int) -> Iterator[MappedText]:
    for line in _flow_lines(text, start, end):
        found, at = MappedTextBuilder(), 0
        for quotes in re.finditer("''", line.text):
            found.extend(line.slice(at, quotes.start()))
            found.extend(line.slice(quotes.start() + 1, quotes.end()))
            at = quotes.end()
        found.extend(line.slice(at))
        yield found.build()


def _double_quoted_lines(text: str, start: int, end: int) -> Iterator[MappedText]:
    for line in _flow_lines(text, start, end):
        found, at = MappedTextBuilder(), 0
        for escape in _ESCAPE.finditer(line.text):
            found.extend(line.slice(at, escape.start()))
            _add_escape(found, escape, line.offsets[escape.start()])
            at = escape.end()
        # A backslash before a line break joins the lines; blanks before it stay.
        rest = line.slice(at)
        found.extend(rest.slice(0, -1) if rest.text.endswith("\\") else rest)
        if found.characters:
            yield found.build()


def _add_escape(found: MappedTextBuilder, escape: re.Match[str], offset: int) -> None:
    digits, letter = escape[1] or escape[2] or escape[3], escape[4]
    if digits:
        found.add_replacement(chr(int(digits, 16)), offset)
    elif letter in _ESCAPES:
        found.add_replacement(_ESCAPES[letter], offset)
    else:
        found.add(letter, offset + 1)
