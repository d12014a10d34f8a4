"""Assignments in shell scripts (exports, inline, options of Slurm and Docker) and env files.

Everything is one pass: a file of any content takes time in proportion to its length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from slipstream.flags.readers.source_map import MappedText, MappedTextBuilder

_SEPARATORS = " \t\r\v\f\x85\u2028\u2029\ufeff"
"""what separates words; a shell knows only blanks and tabs, but the others must not hide a flag"""
_OPERATORS = "\n;&|<>()"
_ENDS_WORD = _SEPARATORS + _OPERATORS
_TAKES_FLAGS = re.compile(r"\w*XLA_FLAGS|LIBTPU_INIT_ARGS")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=")
_BEFORE_ASSIGNMENT = re.compile(r"(?:-e|--env=|--build-arg=|--env-vars=)?(?=[A-Za-z_])")
_REFERENCE = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)")
_DEFAULT = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*):?[-+=]")
_ENV_LINE = re.compile(r"[ \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*", re.M)


@dataclass(frozen=True)
class Assignment:
    """A variable, its value, and the variables that the value refers to."""

    name: str
    value: MappedText
    refers_to: frozenset[str]
    start: int
    """where the name starts"""


def read_shell(text: str, start: int = 0, end: int | None = None) -> Iterator[Assignment]:
    """The assignments between two offsets; a bare `--xla_…` word assigns to the name ``""``.

    A bare word counts in a list of flags, and after `ENV XLA_FLAGS` or `setenv XLA_FLAGS`. After
    any other word it is an argument of a program, which may have such options of its own.
    """
    last = ""
    for word in shell_tokens(text, start, end):
        if isinstance(word, str):
            last = "" if word in _OPERATORS else last
            continue
        is_flag = word.text.startswith("--xla_")
        if not is_flag or not last or _TAKES_FLAGS.fullmatch(last):
            yield from _assignments(word)
        if not is_flag:
            last = word.text


def read_env_file(text: str) -> Iterator[Assignment]:
    """`NAME=value` lines; a value ends with its line or its closing quote."""
    at = 0
    while at < len(text):
        line_end = _find(text, "\n", at, len(text))
        match = _ENV_LINE.match(text, at, line_end)
        if match is None:
            at = line_end + 1
            continue
        begin, end = _env_value(text, match.end(), line_end)
        value = MappedText.verbatim(text[begin:end], begin)
        yield _assignment(match[1], value, match.start(1), False)
        at = _find(text, "\n", end, len(text)) + 1


def _env_value(text: str, at: int, line_end: int) -> tuple[int, int]:
    quote = text[at : at + 1]
    if quote in ("'", '"'):
        closing = text.find(quote, at + 1)
        if closing >= 0:
            return at + 1, closing
    comment = re.search(r"\s#", text[at:line_end])
    end = at + comment.start() if comment else line_end
    return at, at + len(text[at:end].rstrip())


def _assignments(word: MappedText) -> Iterator[Assignment]:
    if word.text.startswith("--export="):
        yield from _exported(word)
        return
    prefix = _BEFORE_ASSIGNMENT.match(word.text)
    match = _ASSIGNMENT.match(word.text, prefix.end()) if prefix else None
    if match:
        value = word.slice(match.end())
        yield _assignment(match[1], value, word.offsets[match.start(1)], bool(match[2]))
    elif word.text.startswith("--xla_"):
        yield Assignment("", word, frozenset(), word.offsets[0])


def _exported(word: MappedText) -> Iterator[Assignment]:
    """Slurm's `--export=ALL,NAME=value,…`."""
    at = len("--export=")
    for item in word.text[at:].split(","):
        match = _ASSIGNMENT.match(item)
        if match:
            value = word.slice(at + match.end(), at + len(item))
            yield _assignment(match[1], value, word.offsets[at], False)
        at += len(item) + 1


def _assignment(name: str, value: MappedText, start: int, appends: bool) -> Assignment:
    refers_to = frozenset(_REFERENCE.findall(value.text)) | ({name} if appends else frozenset())
    return Assignment(name, _without_defaults(value), refers_to, start)


def _without_defaults(value: MappedText) -> MappedText:
    """`${NAME:-text}` as `text`: the value if the variable was not set before."""
    text = value.text
    if _DEFAULT.search(text) is None:
        return value
    closing = _closings(text, "{", "}")
    kept, left_out, at = [], set[int](), 0
    while at < len(text):
        match = _DEFAULT.match(text, at)
        end = closing.get(at + 1) if match else None
        if match is None or end is None:
            if at not in left_out:
                kept.append(at)
            at += 1
            continue
        at = match.end()
        left_out.add(end)
        if end - at > 1 and text[at] == text[end - 1] and text[at] in "'\"":
            left_out |= {at, end - 1}
    return MappedText("".join(text[i] for i in kept), tuple(value.offsets[i] for i in kept))


def _closings(text: str, opening: str, closing: str) -> dict[int, int]:
    """Where each bracket is closed, in one pass: a script may open thousands and close none."""
    found: dict[int, int] = {}
    stack: list[int] = []
    for match in re.finditer(f"[{re.escape(opening + closing)}]", text):
        if match[0] == opening:
            stack.append(match.start())
        elif stack:
            found[stack.pop()] = match.start()
    return found


def shell_tokens(text: str, start: int = 0, end: int | None = None) -> Iterator[MappedText | str]:
    """The words of a script; between them, its operators, line ends and comments as plain text."""
    scanner = _Scanner(text, len(text) if end is None else end)
    at = start
    while at < scanner.end:
        if text[at] in _SEPARATORS:
            at += 1
        elif text.startswith("\\\n", at):
            at += 2
        elif text[at] in _OPERATORS:
            yield text[at]
            at += 1
        elif text.startswith("#SBATCH", at):
            at += len("#SBATCH")
        elif text[at] == "#":
            stop = _find(text, "\n", at, scanner.end)
            yield text[at:stop]
            at = stop
        else:
            at, word = scanner.word(at)
            if word.text:
                yield word


class _Scanner:
    """Reads the words of a script."""

    def __init__(self, text: str, end: int) -> None:
        self._text = text
        self.end = end
        self._closings = {"(": _closings(text, "(", ")"), "{": _closings(text, "{", "}")}

    def word(self, at: int) -> tuple[int, MappedText]:
        """The end of the word that starts at `at`, and the word without its quotes."""
        text, end, word = self._text, self.end, MappedTextBuilder()
        while at < end and text[at] not in _ENDS_WORD:
            if text[at] == "'" and (closing := text.find("'", at + 1, end)) >= 0:
                word.add(text[at + 1 : closing], at + 1)
                at = closing + 1
            elif text[at] == '"' and text.find('"', at + 1, end) >= 0:
                at = self._double_quoted(at + 1, word)
            elif text[at] == "\\":
                if text[at + 1 : at + 2] != "\n":
                    word.add(text[at + 1 : at + 2], at + 1)
                at += 2
            else:
                at = self._plain(at, word)
        return at, word.build()

    def _double_quoted(self, at: int, word: MappedTextBuilder) -> int:
        text = self._text
        while at < self.end and text[at] != '"':
            if text[at] == "\\" and text[at + 1 : at + 2] in ("\n", '"', "\\", "$", "`"):
                if text[at + 1] != "\n":
                    word.add(text[at + 1], at + 1)
                at += 2
            else:
                at = self._plain(at, word)
        return at + 1

    def _plain(self, at: int, word: MappedTextBuilder) -> int:
        """One character, or a whole `$(…)` or `${…}`, which may contain blanks and quotes."""
        stop = at + 1
        if self._text[at] == "$" and (closings := self._closings.get(self._text[at + 1 : at + 2])):
            stop = closings.get(at + 1, at) + 1
        if not at < stop <= self.end:
            stop = at + 1
        word.add(self._text[at:stop], at)
        return stop


def _find(text: str, what: str, at: int, end: int) -> int:
    place = text.find(what, at, end)
    return end if place < 0 else place
