"""Assignments in shell scripts (exports, inline, options of Slurm and Docker) and env files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from slipstream.flags.readers.source_map import MappedText, MappedTextBuilder

_ENDS_WORD = " \t\r\n;&|<>()"
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
    """The assignments between two offsets; a bare `--xla_…` word assigns to the name ``""``."""
    for word in _words(text, start, len(text) if end is None else end):
        yield from _assignments(word)


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
    match = _DEFAULT.search(value.text)
    if match is None:
        return value
    closing = _closing(value.text, match.start() + 1, "{", "}")
    if closing < 0:
        return value
    inner = _without_defaults(_unquoted(value.slice(match.end(), closing)))
    rest = _without_defaults(value.slice(closing + 1))
    before = value.slice(0, match.start())
    return MappedText(
        before.text + inner.text + rest.text, before.offsets + inner.offsets + rest.offsets
    )


def _unquoted(value: MappedText) -> MappedText:
    is_quoted = len(value.text) > 1 and value.text[0] == value.text[-1] and value.text[0] in "'\""
    return value.slice(1, -1) if is_quoted else value


def _closing(text: str, start: int, opening: str, closing: str) -> int:
    depth = 0
    for at in range(start, len(text)):
        depth += (text[at] == opening) - (text[at] == closing)
        if depth == 0:
            return at
    return -1


def _words(text: str, at: int, end: int) -> Iterator[MappedText]:
    while at < end:
        if text[at] in _ENDS_WORD:
            at += 1
        elif text.startswith("#SBATCH", at):
            at += len("#SBATCH")
        elif text[at] == "#":
            at = _find(text, "\n", at, end)
        else:
            word = MappedTextBuilder()
            at = _read_word(text, at, end, word)
            if word.characters:
                yield word.build()


def _read_word(text: str, at: int, end: int, word: MappedTextBuilder) -> int:
    while at < end and text[at] not in _ENDS_WORD:
        if text[at] == "'" and text.find("'", at + 1, end) >= 0:
            closing = text.find("'", at + 1, end)
            word.add(text[at + 1 : closing], at + 1)
            at = closing + 1
        elif text[at] == '"' and text.find('"', at + 1, end) >= 0:
            at = _double_quoted(text, at + 1, end, word)
        elif text[at] == "\\":
            if text[at + 1 : at + 2] != "\n":
                word.add(text[at + 1 : at + 2], at + 1)
            at += 2
        else:
            at = _plain(text, at, end, word)
    return at


def _double_quoted(text: str, at: int, end: int, word: MappedTextBuilder) -> int:
    while at < end and text[at] != '"':
        if text[at] == "\\" and text[at + 1 : at + 2] in ("\n", '"', "\\", "$", "`"):
            if text[at + 1] != "\n":
                word.add(text[at + 1], at + 1)
            at += 2
        else:
            at = _plain(text, at, end, word)
    return at + 1


def _plain(text: str, at: int, end: int, word: MappedTextBuilder) -> int:
    """One character, or a whole `$(…)` or `${…}`, which may contain blanks and quotes."""
    stop = at + 1
    if text.startswith("$(", at):
        stop = _closing(text, at + 1, "(", ")") + 1
    elif text.startswith("${", at):
        stop = _closing(text, at + 1, "{", "}") + 1
    if not at < stop <= end:
        stop = at + 1
    word.add(text[at:stop], at)
    return stop


def _find(text: str, what: str, at: int, end: int) -> int:
    place = text.find(what, at, end)
    return end if place < 0 else place
