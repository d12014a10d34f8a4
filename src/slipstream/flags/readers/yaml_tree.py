"""YAML and JSON as a tree whose texts know where they stand: as much of YAML as job files use.

Block and flow maps and lists, plain, quoted and block texts, anchors, aliases, tags, comments.
Anything else is a `YamlError`, and the file is read line by line instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from slipstream.flags.readers.source_map import MappedText, MappedTextBuilder

_DOCUMENT = re.compile(r"^(?:---|\.\.\.)(?=\s|$)", re.M)
_BREAK = re.compile(r"[ \t]*\r?\n[ \t]*")
_KEY = re.compile(
    r"(?:\"(?:\\.|[^\"\\\n])*\"|'(?:''|[^'\n])*'|[^\s\"'{}\[\],#&*!|>%@`][^\n]*?)"
    r"[ ]*:(?=[ \t\r\n]|$)"
)
_PROPERTY = re.compile(r"(?:&(?P<anchor>[^\s,\[\]{}]+)|![^\s,\[\]{}]*)[ \t]*")
_BLOCK = re.compile(r"(?P<style>[|>])(?P<marks>[+\-\d]*)[ \t]*(?:#[^\n]*)?\r?(?:\n|$)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "a": "\a", "e": "\x1b", "_": " "}
_HEX = {"x": 2, "u": 4, "U": 8}


class YamlError(Exception):
    """Something that this reader doesn't read; the file may be fine."""


@dataclass(frozen=True)
class Map:
    """Keys and values, in the order of the file."""

    entries: tuple[tuple[MappedText, Node], ...]


@dataclass(frozen=True)
class List:
    """Values, in the order of the file."""

    items: tuple[Node, ...]


Node = MappedText | Map | List


def read_tree(text: str) -> Iterator[Node]:
    """The documents of a file."""
    starts = [0, *(match.end() for match in _DOCUMENT.finditer(text))]
    ends = [*(match.start() for match in _DOCUMENT.finditer(text)), len(text)]
    for start, end in zip(starts, ends, strict=True):
        if text[start:end].strip():
            yield _Document(text, start, end).read()


class _Document:
    """One document: a cursor that goes forward, and the anchors met so far."""

    def __init__(self, text: str, start: int, end: int) -> None:
        self._text = text[:end]
        self._at = start
        self._anchors: dict[str, Node] = {}

    def read(self) -> Node:
        node = self._block(-1)
        self._skip_blank()
        if self._at < len(self._text):
            raise YamlError(self._at)
        return node

    # Where the cursor is.

    def _peek(self, count: int = 1) -> str:
        return self._text[self._at : self._at + count]

    def _column(self) -> int:
        return self._at - (self._text.rfind("\n", 0, self._at) + 1)

    def _skip_blank(self) -> None:
        """To the next thing that is neither a blank nor a comment."""
        while self._at < len(self._text):
            if self._text[self._at] in " \t\r\n":
                self._at += 1
            elif self._text[self._at] == "#":
                self._to_line_end()
            else:
                return

    def _skip_spaces(self) -> bool:
        """Within the line; whether there is nothing more on it."""
        while self._peek() in (" ", "\t"):
            self._at += 1
        is_end = self._at >= len(self._text) or self._peek() in "\r\n#"
        return is_end

    def _to_line_end(self) -> None:
        end = self._text.find("\n", self._at)
        self._at = len(self._text) if end < 0 else end

    def _is_dash(self) -> bool:
        return self._peek() == "-" and self._text[self._at + 1 : self._at + 2] in (
            *("", " ", "\t", "\r", "\n"),
        )

    # Blocks, by their indentation.

    def _block(self, parent: int, is_value: bool = False) -> Node:
        """What follows, if it stands further in than `parent`; a value's list needn't."""
        self._skip_blank()
        column = self._column()
        is_flush_list = is_value and column == parent and self._is_dash()
        if self._at >= len(self._text) or column <= parent and not is_flush_list:
            return MappedText("", ())
        return self._content(parent if not is_flush_list else parent - 1)

    def _content(self, parent: int) -> Node:
        """What stands at the cursor."""
        anchor = self._properties()
        if anchor is not None and self._skip_spaces():
            node = self._block(parent, is_value=True)
        elif self._is_dash():
            node = self._list()
        elif _KEY.match(self._text, self._at):
            node = self._map()
        else:
            node = self._scalar(parent)
        return self._kept(anchor, node)

    def _list(self) -> Node:
        column, items = self._column(), []
        while self._at < len(self._text) and self._column() == column and self._is_dash():
            self._at += 1
            is_end = self._skip_spaces()
            items.append(self._block(column) if is_end else self._content(column))
            self._skip_blank()
        return List(tuple(items))

    def _map(self) -> Node:
        column, entries = self._column(), []
        while self._at < len(self._text) and self._column() == column:
            if _KEY.match(self._text, self._at) is None or self._is_dash():
                raise YamlError(self._at)
            key = self._key()
            self._skip_spaces()
            anchor = self._properties()
            is_end = self._skip_spaces()
            value = self._block(column, is_value=True) if is_end else self._scalar(column)
            entries.append((key, self._kept(anchor, value)))
            self._skip_blank()
        return Map(tuple(entries))

    def _key(self) -> MappedText:
        if self._peek() in ("'", '"'):
            key = self._quoted()
        else:
            end = re.compile(r"[ ]*:(?=[ \t\r\n]|$)").search(self._text, self._at)
            if end is None:
                raise YamlError(self._at)
            key = MappedText.verbatim(self._text[self._at : end.start()], self._at)
            self._at = end.start()
        self._skip_spaces()
        self._at += 1
        return key

    def _properties(self) -> str | None:
        """Skips tags; the anchor's name, or "" for a tag alone."""
        anchor = None
        while match := _PROPERTY.match(self._text, self._at):
            anchor = match["anchor"] or anchor or ""
            self._at = match.end()
        return anchor

    def _kept(self, anchor: str | None, node: Node) -> Node:
        if anchor:
            self._anchors[anchor] = node
        return node

    # Values.

    def _scalar(self, parent: int) -> Node:
        first = self._peek()
        if first in ("{", "[", "*", "'", '"'):
            return self._flow()
        block = _BLOCK.match(self._text, self._at)
        if block is not None:
            return self._block_text(block, parent)
        if first in ("@", "`", "%") or first == "":
            raise YamlError(self._at)
        return self._plain(parent)

    def _plain(self, parent: int) -> MappedText:
        value = MappedTextBuilder()
        while True:
            end = self._line_end()
            line = re.split(r"[ \t]#", self._text[self._at : end])[0].rstrip()
            if value.characters:
                value.add_replacement(" ", self._at)
            value.add(line, self._at)
            self._at = end
            here = self._at
            self._skip_blank()
            if self._at >= len(self._text) or self._column() <= parent:
                self._at = here
                return value.build()

    def _line_end(self) -> int:
        end = self._text.find("\n", self._at)
        return len(self._text) if end < 0 else end

    def _block_text(self, match: re.Match[str], parent: int) -> MappedText:
        self._at = match.end()
        digits = re.sub(r"\D", "", match["marks"])
        indent = max(parent, 0) + int(digits) if digits else None
        value, is_literal = MappedTextBuilder(), match["style"] == "|"
        while self._at < len(self._text):
            end = self._line_end()
            line = self._text[self._at : end].rstrip("\r")
            inner = len(line) - len(line.lstrip(" "))
            if line.strip() and inner <= parent:
                break
            if line.strip():
                indent = inner if indent is None else indent
                value.add(line[indent:], self._at + indent)
            value.add_replacement("\n" if is_literal or not line.strip() else " ", self._at)
            self._at = min(end + 1, len(self._text))
        return value.build()

    def _quoted(self) -> MappedText:
        quote, value = self._peek(), MappedTextBuilder()
        self._at += 1
        while self._at < len(self._text):
            here = self._peek()
            folded = _BREAK.match(self._text, self._at)
            if folded is not None:
                value.add_replacement(" ", self._at)
                self._at = folded.end()
            elif here == quote == "'" and self._peek(2) == "''":
                value.add("'", self._at + 1)
                self._at += 2
            elif here == quote:
                self._at += 1
                return value.build()
            elif here == "\\" and quote == '"':
                self._escape(value)
            else:
                value.add(here, self._at)
                self._at += 1
        raise YamlError(self._at)

    def _escape(self, value: MappedTextBuilder) -> None:
        start, letter = self._at, self._text[self._at + 1 : self._at + 2]
        self._at += 2
        if letter in ("\n", "\r"):
            self._skip_spaces_and_breaks()
        elif letter in _HEX:
            digits = self._text[self._at : self._at + _HEX[letter]]
            if not re.fullmatch(r"[0-9a-fA-F]+", digits):
                raise YamlError(start)
            value.add_replacement(chr(int(digits, 16)), start)
            self._at += _HEX[letter]
        elif letter in _ESCAPES:
            value.add_replacement(_ESCAPES[letter], start)
        else:
            value.add(letter, start + 1)

    def _skip_spaces_and_breaks(self) -> None:
        while self._peek() and self._peek() in " \t\r\n":
            self._at += 1

    # Flow: {…}, […], and what stands in them.

    def _flow(self) -> Node:
        anchor = self._properties()
        first = self._peek()
        if first == "{":
            node: Node = self._flow_map()
        elif first == "[":
            node = self._flow_list()
        elif first == "*":
            node = self._alias()
        elif first in ("'", '"'):
            node = self._quoted()
        else:
            node = self._flow_plain()
        return self._kept(anchor, node)

    def _alias(self) -> Node:
        match = re.compile(r"\*([^\s,\[\]{}]+)").match(self._text, self._at)
        if match is None or match[1] not in self._anchors:
            raise YamlError(self._at)
        self._at = match.end()
        return self._anchors[match[1]]

    def _flow_map(self) -> Map:
        self._at += 1
        entries = []
        while not self._closes("}"):
            key = self._flow()
            self._skip_blank()
            value: Node = MappedText("", ())
            if self._peek() == ":":
                value = self._flow_value()
            if not isinstance(key, MappedText):
                raise YamlError(self._at)
            entries.append((key, value))
            self._comma("}")
        return Map(tuple(entries))

    def _flow_list(self) -> List:
        self._at += 1
        items: list[Node] = []
        while not self._closes("]"):
            item = self._flow()
            self._skip_blank()
            if self._peek() == ":" and isinstance(item, MappedText):
                item = Map(((item, self._flow_value()),))
            items.append(item)
            self._comma("]")
        return List(tuple(items))

    def _flow_value(self) -> Node:
        self._at += 1
        self._skip_blank()
        return MappedText("", ()) if self._peek() in (",", "}", "]") else self._flow()

    def _closes(self, bracket: str) -> bool:
        self._skip_blank()
        if self._peek() == bracket:
            self._at += 1
            return True
        if self._at >= len(self._text):
            raise YamlError(self._at)
        return False

    def _comma(self, bracket: str) -> None:
        self._skip_blank()
        if self._peek() == ",":
            self._at += 1
        elif self._peek() != bracket:
            raise YamlError(self._at)

    def _flow_plain(self) -> MappedText:
        match = re.compile(r"(?:(?!:[ \t\r\n,\[\]{}]|:$|[ \t]#)[^,\[\]{}\n])+").match(
            self._text, self._at
        )
        if match is None or not match[0].strip():
            raise YamlError(self._at)
        self._at = match.end()
        text = match[0].rstrip()
        return MappedText.verbatim(text, match.start())
