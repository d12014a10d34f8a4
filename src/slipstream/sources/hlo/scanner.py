"""Scans HLO text: names, shapes, brackets, strings and comments, with the place of an error."""

from __future__ import annotations

import re
from typing import NoReturn

from slipstream.errors import BadInput
from slipstream.profile.shapes import Shape, scan_shape

_SPACE = re.compile(r"(?:\s+|/\*.*?\*/|//[^\n]*)*", re.DOTALL)
_NAME = re.compile(r"%?([\w.\-$:]+)|%?\"((?:\\.|[^\"\\])*)\"")
_KEY = re.compile(r"([\w\-.$]+)\s*=\s*")
# The pieces of a balanced value: whole strings, brackets, commas, line ends, and the rest.
PIECE = re.compile(
    r'"(?:\\.|[^"\\])*"|/\*.*?\*/|[{(\[]|[\])}]|[,\n]|(?:[^"{(\[\])},\n/]|/(?!\*))+', re.S
)
OPENING, CLOSING = "{([", "})]"


class Scanner:
    """A position in a text, and what can be read from there."""

    def __init__(self, text: str, source: str) -> None:
        self.text = text
        self.source = source
        self.at = 0

    def fail(self, expected: str, at: int | None = None) -> NoReturn:
        at = self.at if at is None else at
        line = self.text.count("\n", 0, at) + 1
        column = at - self.text.rfind("\n", 0, at)
        seen = self.text[at : at + 40].split("\n")[0]
        raise BadInput(
            f"{self.source}, line {line}, column {column}: expected {expected}, "
            f"saw {seen!r}{' at the end of the text' if at >= len(self.text) else ''}; "
            f"write the program again with compiled.as_text()"
        )

    def skip(self) -> None:
        match = _SPACE.match(self.text, self.at)
        assert match is not None
        self.at = match.end()

    def peek(self, token: str) -> bool:
        return self.text.startswith(token, self.at)

    def take(self, token: str) -> bool:
        """Skip `token` if it comes next, after spaces and comments."""
        self.skip()
        if not self.peek(token):
            return False
        self.at += len(token)
        return True

    def expect(self, token: str) -> None:
        if not self.take(token):
            self.fail(repr(token))

    def word(self, pattern: re.Pattern[str], what: str) -> re.Match[str]:
        self.skip()
        match = pattern.match(self.text, self.at)
        if match is None:
            self.fail(what)
        self.at = match.end()
        return match

    def name(self) -> str:
        match = self.word(_NAME, "a name")
        return match[1] or match[2]

    def word_follows(self, word: str) -> bool:
        """Skip `word` if it comes next and a space follows: names may start with it too."""
        self.skip()
        end = self.at + len(word)
        if not self.peek(word) or self.text[end : end + 1] not in (" ", "\t"):
            return False
        self.at = end
        return True

    def shape(self) -> Shape:
        self.skip()
        try:
            shape, self.at = scan_shape(self.text, self.at)
        except ValueError:
            self.fail("a shape such as f32[8,128]{1,0}")
        return shape

    def balanced(self, stop: str) -> str:
        """Text up to one of the characters in `stop`, outside brackets and strings."""
        start = self.at
        depth = 0
        while (match := PIECE.match(self.text, self.at)) is not None:
            piece = match.group()
            if depth == 0 and piece in stop:
                return self.text[start : self.at].strip()
            if piece in OPENING:
                depth += 1
            elif piece in CLOSING:
                depth -= 1
                if depth < 0:
                    self.fail(f"one of {stop!r} before a closing bracket")
            self.at = match.end()
        if self.at < len(self.text) or "\n" not in stop or depth:
            self.fail(f"one of {stop!r} to end what starts with {self.text[start : start + 20]!r}")
        return self.text[start : self.at].strip()

    def attributes(self) -> dict[str, str]:
        """`, key=value` pairs up to the end of the line."""
        found: dict[str, str] = {}
        while self.same_line(","):
            key = self.word(_KEY, "an attribute such as dimensions={0}")[1]
            found[key] = self.balanced(",\n")
        return found

    def same_line(self, token: str) -> bool:
        while self.at < len(self.text) and self.text[self.at] in " \t":
            self.at += 1
        if not self.peek(token):
            return False
        self.at += len(token)
        return True
