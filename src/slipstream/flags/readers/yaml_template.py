"""Settings in templates (Helm, Jinja), which become YAML only when rendered.

Read line by line: maps, name and value lists, and text blocks, which are shell scripts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from slipstream.flags.readers.shell import Assignment, read_shell
from slipstream.flags.readers.source_map import MappedText, MappedTextBuilder, split_lines

_ENTRY = re.compile(
    r"(?P<indent>[ ]*(?:-[ ]+)*)"
    r"(?:(?P<quote>[\"'])(?P<quoted>[^\"']+)(?P=quote)|(?P<plain>[A-Za-z_][\w.-]*))"
    r"[ ]*:(?:[ ]+|$)"
)
_ITEM = re.compile(r"[ ]*-[ ]+[\"']?(?=[A-Z_]+=|--xla_)")
_BLOCK = re.compile(r"[|>][+-]?\d?[+-]?[ ]*(?:#.*)?$")


@dataclass(frozen=True)
class _Line:
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    @property
    def indent(self) -> int:
        return len(self.text) - len(self.text.lstrip(" "))

    @property
    def is_blank(self) -> bool:
        return not self.text.strip()


def read_yaml_template(text: str, is_relevant: Callable[[str], bool]) -> Iterator[Assignment]:
    """Entries with relevant names, and the assignments of scripts."""
    lines = _lines(text)
    named: tuple[str, int, int] | None = None  # of `name: XLA_FLAGS`: text, offset, indentation
    at = 0
    while at < len(lines):
        line = lines[at]
        entry = _ENTRY.match(line.text)
        at += 1
        if entry is None:
            if _ITEM.match(line.text):
                yield from _listed(text, line)
            continue
        key, column = entry["quoted"] or entry["plain"], len(entry["indent"])
        end = _block_end(lines, at, line.indent)
        value = _scalar(text, lines, at - 1, end, entry.end())
        place = line.start + column + bool(entry["quote"])
        if key == "name" and is_relevant(value.text):
            named = (value.text, value.offsets[0], column)
        elif key == "value" and named is not None and named[2] == column:
            yield Assignment(named[0], value, frozenset(), named[1])
            named = None
        elif is_relevant(key):
            yield Assignment(key, value, frozenset(), place)
        elif _BLOCK.match(line.text[entry.end() :]) and end > at:
            yield from read_shell(
                text, lines[at].start, lines[end - 1].start + len(lines[end - 1].text)
            )
            at = end


def _lines(text: str) -> list[_Line]:
    lines, start = [], 0
    for line in split_lines(text):
        lines.append(_Line(line.rstrip("\r\n"), start))
        start += len(line)
    return lines


def _listed(text: str, line: _Line) -> Iterator[Assignment]:
    """docker-compose's `- NAME=value`: no shell reads it, blanks are part of the value."""
    begin = line.text.index("-") + 1
    content = line.text[begin:].strip()
    if content[:1] in ("'", '"') or "=" not in content or content.startswith("--"):
        yield from read_shell(text, line.start + begin, line.start + len(line.text))
        return
    name, _, value = content.partition("=")
    start = line.start + line.text.index(content)
    yield Assignment(name, MappedText.verbatim(value, start + len(name) + 1), frozenset(), start)


def _block_end(lines: list[_Line], at: int, indent: int) -> int:
    while at < len(lines) and (lines[at].is_blank or lines[at].indent > indent):
        at += 1
    return at


def _scalar(text: str, lines: list[_Line], at: int, end: int, column: int) -> MappedText:
    line = lines[at]
    rest = line.text[column:]
    start = line.start + column
    if rest[:1] in ("'", '"'):
        return _quoted(text, start, rest[0])
    if _BLOCK.match(rest):
        return _joined(lines[at + 1 : end])
    rest = re.split(r"[ ]#", rest)[0].rstrip().rstrip(",")
    first = MappedText.verbatim(rest, start)
    more = _joined([other for other in lines[at + 1 : end] if not _ENTRY.match(other.text)])
    if not rest or not more.text:
        return first
    return MappedText(first.text + " " + more.text, (*first.offsets, start, *more.offsets))


def _joined(lines: list[_Line]) -> MappedText:
    value = MappedTextBuilder()
    for line in lines:
        if value.characters:
            value.add_replacement(" ", line.start)
        content = line.text.strip()
        value.add(content, line.start + line.indent)
    return value.build()


def _quoted(text: str, start: int, quote: str) -> MappedText:
    value, at = MappedTextBuilder(), start + 1
    while at < len(text):
        if quote == '"' and text[at] == "\\" and at + 1 < len(text):
            if text[at + 1] != "\n":
                value.add(text[at + 1], at + 1)
            at += 2
        elif text[at] == quote:
            if quote == "'" and text[at + 1 : at + 2] == "'":
                at += 1
                value.add("'", at)
                at += 1
                continue
            break
        else:
            value.add(text[at], at)
            at += 1
    return value.build()
