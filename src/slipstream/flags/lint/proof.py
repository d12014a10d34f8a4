"""Prove that a rewritten file differs in the settings that were to change, and in nothing else.

Both texts are read again. Every setting must be what it was, or what its fix says. Then the files
are compared part by part, as their format has parts:

    shell, env file, template   words, operators, line ends and comments
    YAML                        nodes and scalars; the words of a scalar that was rewritten
    Python                      the syntax tree; the words of a literal that was rewritten

A part without a fix is equal to the character. In a part with one, the words of the value are the
old ones with the fix applied, and what is around the value is equal.
"""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from slipstream.errors import BadInput
from slipstream.flags.readers.python import PythonSource
from slipstream.flags.readers.shell import shell_tokens
from slipstream.flags.readers.source_map import BLANKS, MappedText, split_lines
from slipstream.flags.readers.yaml import documents, scalar_in
from slipstream.flags.settings import FileFormat, Setting, is_sourced, read_text

if TYPE_CHECKING:
    from yaml import Node

_REMOVABLE = re.compile(r"[ \t\r\n\\,]")


@dataclass(frozen=True)
class Edit:
    """A fix: what replaces the text of a setting; empty to remove it."""

    span: tuple[int, int]
    old: str
    new: str
    within: tuple[int, int] | None
    """the value that it is a part of; None if it is a whole assignment or entry"""

    @cached_property
    def core(self) -> tuple[int, int, str]:
        """Start and end of what really changes, and the text for it.

        Of `NAME="ture` and `NAME="true`, the letters in the middle: quotes are not part of it.
        """
        most = min(len(self.old), len(self.new))
        same = (n for n in range(most) if self.old[n] != self.new[n])
        head = next(same, most)
        ends = (n for n in range(most - head) if self.old[-1 - n] != self.new[-1 - n])
        tail = next(ends, most - head)
        if head + tail == len(self.old):
            head = max(head - 1, 0)  # an insertion belongs to the character before it
        start, end = self.span
        return start + head, end - tail, self.new[head : len(self.new) - tail]

    @property
    def value(self) -> tuple[int, int]:
        """Where blanks may change with it."""
        return self.within or self.core[:2]


class _Edits:
    """Edits, found by their position in the file."""

    def __init__(self, edits: Sequence[Edit]) -> None:
        self.all = edits
        self._sorted = sorted(edits, key=lambda edit: edit.core)
        self._starts = [edit.core[0] for edit in self._sorted]

    def at(self, offset: int) -> Edit | None:
        """The edit that replaces the character there."""
        number = bisect_right(self._starts, offset) - 1
        edit = self._sorted[number] if number >= 0 else None
        return edit if edit is not None and offset < edit.core[1] else None

    def of(self, part: MappedText) -> list[Edit]:
        """The edits of a part, in order."""
        return list(dict.fromkeys(edit for o in part.offsets if (edit := self.at(o)) is not None))


def is_proved(before: str, after: str, edits: Sequence[Edit], form: FileFormat) -> bool:
    """Whether the two texts differ by these edits only."""
    try:
        return (
            _same_characters(before, after, edits)
            and _same_settings(before, after, edits, form)
            and _same_parts(before, after, edits, form)
        )
    except (BadInput, RecursionError):
        return False  # what was written can't be read


def _same_characters(before: str, after: str, edits: Sequence[Edit]) -> bool:
    """Every quote, operator and letter; only blanks, continued lines and commas may go."""
    parts, at = [], 0
    for edit in sorted(edits, key=lambda edit: edit.span):
        parts += [before[at : edit.span[0]], edit.new]
        at = edit.span[1]
    expected = "".join([*parts, before[at:]])
    return _REMOVABLE.sub("", expected) == _REMOVABLE.sub("", after)


def _same_settings(before: str, after: str, edits: Sequence[Edit], form: FileFormat) -> bool:
    fixes = {edit.span: edit for edit in edits}
    expected: list[tuple[Any, ...]] = []
    settings = read_text(before, form)
    for one in settings:  # two of them, if YAML's aliases refer to the same text
        edit = fixes.get(one.place.span) if one.place.span else None
        expected += [_facts(one)] if edit is None else _expected(one, edit)
    found = [_facts(one) for one in read_text(after, form)]
    matches = (
        known[: len(seen)] == seen[: len(known)]
        for known, seen in zip_longest(expected, found, fillvalue=())
        if known and seen
    )
    is_complete = fixes.keys() <= {one.place.span for one in settings}
    return is_complete and len(expected) == len(found) and all(matches)


def _facts(one: Setting) -> tuple[Any, ...]:
    return (one.kind, one.group, one.name, one.value)


def _expected(one: Setting, edit: Edit) -> Iterator[tuple[Any, ...]]:
    """The settings that a fix leaves in place of one."""
    if one.kind == "env":
        # The proof of the parts compares its value.
        yield (one.kind, one.group, *re.findall(r"[A-Z]\w+", edit.new)[:1])
    elif one.kind == "compiler_options":
        for name, value in ast.literal_eval("{" + edit.new + "}").items():
            yield (one.kind, one.group, name, str(value))
    else:
        for word in edit.new.split():
            name, equals, value = word.removeprefix("--").partition("=")
            yield (one.kind, one.group, name, value if equals else None)


def _same_parts(before: str, after: str, all_edits: Sequence[Edit], form: FileFormat) -> bool:
    edits = _Edits(all_edits)
    if form == "python":
        return _SyntaxTrees(before, after, edits).are_same()
    if form == "yaml":
        roots = documents(before), documents(after)
        if roots[0] is not None and roots[1] is not None:
            return _same_nodes(roots[0], roots[1], before, edits)
        return roots == (None, None) and _same_lines(before, after, edits)
    if form == "env" and not is_sourced(before):
        return _same_lines(before, after, edits)
    return _same_tokens(shell_tokens(before), shell_tokens(after), edits)


def _same_text(before: MappedText, after: str, edits: _Edits) -> bool:
    """Whether a part is as expected: the words of a value as its fixes say, the rest equal."""
    own = edits.of(before)
    if not own:
        return before.text == after
    pattern, at, text = "", 0, before.text
    exact = {edit.value for edit in own if edit.within is None}
    for low, high in sorted({edit.value for edit in own}):
        inside = [i for i in range(at, len(text)) if low <= before.offsets[i] < high]
        if not inside:
            continue
        pattern += re.escape(text[at : inside[0]])
        at = inside[-1] + 1
        value = _edited(before.slice(inside[0], at), edits)
        if (low, high) in exact:
            pattern += re.escape(value)
        else:
            words = [re.escape(word) for word in value.split()]
            pattern += rf"[{BLANKS}]*" + rf"[{BLANKS}]+".join(words) + rf"[{BLANKS}]*"
    return re.fullmatch(pattern + re.escape(text[at:]), after) is not None


def _edited(value: MappedText, edits: _Edits) -> str:
    """A value with its fixes."""
    found: list[str] = []
    last: Edit | None = None
    for character, offset in zip(value.text, value.offsets, strict=True):
        edit = edits.at(offset)
        if edit is None:
            found.append(character)
        elif edit is not last:
            found.append(edit.core[2])
        last = edit
    return "".join(found)


# Shell scripts, env files and templates.


def _same_tokens(
    before: Iterable[MappedText | str], after: Iterable[MappedText | str], edits: _Edits
) -> bool:
    for a, b in zip_longest(before, after):
        if isinstance(a, str) or isinstance(b, str) or a is None or b is None:
            if a != b:
                return False
        elif not _same_text(a, b.text, edits):
            return False
    return True


def _same_lines(before: str, after: str, edits: _Edits) -> bool:
    """Line by line; a line that held nothing but a removed flag may be gone."""
    return _same_tokens(_lines(before, edits), _lines(after, _Edits(())), edits)


def _lines(text: str, edits: _Edits) -> Iterator[MappedText]:
    start = 0
    for line in split_lines(text):
        found = MappedText.verbatim(line, start)
        start += len(line)
        if _edited(found, edits).strip(f"{BLANKS}\\"):
            yield found


# YAML.


def _same_nodes(before: list[Node], after: list[Node], text: str, edits: _Edits) -> bool:
    if len(before) != len(after):
        return False
    pending, seen = list(zip(before, after, strict=True)), set[tuple[int, int]]()
    while pending:
        a, b = pending.pop()
        if (id(a), id(b)) in seen:
            continue  # an alias
        seen.add((id(a), id(b)))
        if a.id != b.id or a.tag != b.tag:
            return False
        if a.id == "scalar":
            scalar = scalar_in(a, text)
            if scalar is not None and edits.of(scalar):
                if a.style != b.style or not _same_text(scalar, b.value, edits):
                    return False
            elif a.value != b.value:
                return False
        elif len(a.value) != len(b.value):
            return False
        elif a.id == "mapping":
            for (key, value), (new_key, new_value) in zip(a.value, b.value, strict=True):
                pending += [(key, new_key), (value, new_value)]
        else:
            pending += zip(a.value, b.value, strict=True)
    return True


# Python.


class _SyntaxTrees:
    """The trees of two files, compared node by node."""

    def __init__(self, before: str, after: str, edits: _Edits) -> None:
        self._before, self._after = PythonSource(before), PythonSource(after)
        self._edits = edits
        self._entries = {edit.span[0]: edit for edit in edits.all if edit.within is None}
        self._pending: list[tuple[Any, Any]] = []

    def are_same(self) -> bool:
        self._pending = [(self._before.tree, self._after.tree)]
        while self._pending:
            if not self._is_same(*self._pending.pop()):
                return False
        return True

    def _is_same(self, a: Any, b: Any) -> bool:
        if type(a) is not type(b):
            return False
        if isinstance(a, list):
            self._pending += zip(a, b, strict=False)
            return len(a) == len(b)
        if isinstance(a, ast.Dict):
            return self._same_entries(a, b)
        if isinstance(a, ast.Constant | ast.JoinedStr):
            text = self._before.literals(a)
            if self._edits.of(text):
                same = _inserted(a) == _inserted(b)
                return same and _same_text(text, self._after.literals(b).text, self._edits)
        if not isinstance(a, ast.AST):
            return bool(a == b)
        self._pending += ((getattr(a, name, None), getattr(b, name, None)) for name in a._fields)
        return True

    def _same_entries(self, a: ast.Dict, b: ast.Dict) -> bool:
        """Entries of a dict; a compile option with a fix is another entry, or none."""
        left = list(zip(b.keys, b.values, strict=True))
        for key, value in zip(a.keys, a.values, strict=True):
            edit = self._entries.get(self._before.span(key)[0]) if key is not None else None
            is_option = edit is not None and edit.old[:1] in ("'", '"')
            if is_option and edit is not None and not edit.new:
                continue
            if not left:
                return False
            new = left.pop(0)
            if not is_option or edit is None:
                self._pending += [(key, new[0]), (value, new[1])]
                continue
            (wanted,) = ast.parse("{" + edit.new + "}", mode="eval").body.keys  # type: ignore[attr-defined]
            (content,) = ast.parse("{" + edit.new + "}", mode="eval").body.values  # type: ignore[attr-defined]
            self._pending += [(wanted, new[0]), (content, new[1])]
        return not left


def _inserted(node: ast.AST) -> list[str]:
    """The expressions in an f-string."""
    return [ast.dump(one) for one in ast.walk(node) if isinstance(one, ast.FormattedValue)]
