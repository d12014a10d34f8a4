"""Text with the position of each character in the file it comes from.

Shells join quoted pieces, Python joins literals, YAML folds lines: XLA gets a different text than
the file contains, but a fix must change the file.

    file    export XLA_FLAGS="--a=1 \\⏎   --b=2"
    value                     --a=1 ····--b=2          each character with its offset in the file
"""

from __future__ import annotations

import itertools
import re
import string
from collections.abc import Iterator
from dataclasses import dataclass, field

BLANKS = " \t\r\n"
BYTE_ORDER_MARK = "\ufeff"
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_NAME = frozenset("-_" + string.ascii_letters + string.digits)


def split_lines(text: str) -> list[str]:
    """The lines as Python, shells and editors count them; form feeds and U+2028 end none."""
    return _LINE.findall(text)


@dataclass(frozen=True)
class MappedText:
    """Text, and the offset in the file of each character."""

    text: str
    offsets: tuple[int, ...]

    @classmethod
    def verbatim(cls, text: str, start: int) -> MappedText:
        """Text that is in the file unchanged, from `start` on."""
        return cls(text, tuple(range(start, start + len(text))))

    def slice(self, start: int, end: int | None = None) -> MappedText:
        """The characters from `start` to `end`."""
        return MappedText(self.text[start:end], self.offsets[start:end])

    @property
    def extent(self) -> tuple[int, int] | None:
        """Where its first character starts and its last ends; None if it has none."""
        return (self.offsets[0], self.offsets[-1] + 1) if self.offsets else None

    @property
    def is_verbatim(self) -> bool:
        """Whether the file holds it as it is, without quotes or escapes in between."""
        return all(b - a == 1 for a, b in itertools.pairwise(self.offsets))


@dataclass
class MappedTextBuilder:
    """Builds a `MappedText` piece by piece."""

    characters: list[str] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)

    def add(self, text: str, start: int) -> None:
        """Add text that is in the file unchanged, from `start` on."""
        self.characters += text
        self.offsets += range(start, start + len(text))

    def add_replacement(self, text: str, offset: int) -> None:
        """Add text that isn't in the file, such as the meaning of an escape at `offset`."""
        self.characters += text
        self.offsets += [offset] * len(text)

    def extend(self, text: MappedText) -> None:
        """Add text that already has offsets."""
        self.characters += text.text
        self.offsets += text.offsets

    def build(self) -> MappedText:
        return MappedText("".join(self.characters), tuple(self.offsets))


@dataclass(frozen=True)
class FlagWord:
    """One word of a flag string, split as XLA does."""

    text: str
    """without the quotes that XLA removes"""
    start: int
    end: int
    """its position in the file"""
    is_verbatim: bool = True
    """whether the file holds it in one piece"""


def flag_words(value: MappedText) -> Iterator[FlagWord]:
    """The words of XLA_FLAGS, split at blanks except in quotes right after a flag's `=`."""
    text, at = value.text, 0
    while at < len(text):
        if text[at] in BLANKS:
            at += 1
            continue
        content, end = _word(text, at)
        start, stop = value.offsets[at], value.offsets[end - 1] + 1
        yield FlagWord(content, start, stop, value.slice(at, end).is_verbatim)
        at = end


def libtpu_words(value: MappedText) -> Iterator[FlagWord]:
    """The words of LIBTPU_INIT_ARGS: libtpu splits at spaces only, and keeps quotes."""
    for match in re.finditer("[^ ]+", value.text):
        if match[0].strip():
            start, stop = value.offsets[match.start()], value.offsets[match.end() - 1] + 1
            is_verbatim = value.slice(*match.span()).is_verbatim
            yield FlagWord(match[0], start, stop, is_verbatim)


def _word(text: str, start: int) -> tuple[str, int]:
    at = start
    while at < len(text) and text[at] in _NAME:
        at += 1
    if text[start] == "-" and text[at : at + 1] == "=" and text[at + 1 : at + 2] in ("'", '"'):
        quoted, end = _quoted(text, at + 1)
        return text[start : at + 1] + quoted, end
    while at < len(text) and text[at] not in BLANKS:
        at += 1
    return text[start:at], at


def _quoted(text: str, start: int) -> tuple[str, int]:
    quote, at = text[start], start + 1
    content: list[str] = []
    while at < len(text) and text[at] != quote:
        if quote == '"' and text[at] == "\\" and at + 1 < len(text):
            at += 1
        content.append(text[at])
        at += 1
    return "".join(content), min(at + 1, len(text))
