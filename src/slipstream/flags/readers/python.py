"""Settings in Python source: `os.environ`, `setdefault`, `update`, `compiler_options={…}`."""

from __future__ import annotations

import ast
import itertools
import re
import warnings
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from slipstream.errors import BadInput
from slipstream.flags.readers.source_map import (
    BYTE_ORDER_MARK,
    MappedText,
    MappedTextBuilder,
    split_lines,
)

_LITERAL = re.compile(
    r"""(?P<prefix>[rRbBuUfF]{0,2})(?P<quote>\"\"\"|'''|"|')(?P<body>(?:\\.|(?!(?P=quote)).)*)(?P=quote)"""
    r"""|\#[^\n]*""",
    re.S,
)
_ESCAPE = re.compile(r"\\(\n|.)", re.S)
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"', "\n": ""}
_SETTERS = frozenset(("setdefault", "setenv", "putenv"))
_FLAG_START = "--xla_"
_MOST_REPETITION = 30
"""how much longer than the file the values may be if each is counted wherever it is read"""


@dataclass(frozen=True)
class PythonAssignment:
    """A name and its value: a variable, or an entry of compiler_options."""

    name: str
    value: MappedText
    is_option: bool
    appends: bool
    start: int
    end: int
    """where the name starts and the value ends"""


def read_python(text: str) -> Iterator[PythonAssignment]:
    """All settings, in the order of the source."""
    source = PythonSource(text)
    found = [item for node in ast.walk(source.tree) for item in _items(node, source)]
    unique = {(item.start, item.name): item for item in found}
    yield from sorted(unique.values(), key=lambda item: item.start)


class PythonSource:
    """A parsed file, with character offsets of nodes; `ast` counts lines and UTF-8 bytes."""

    def __init__(self, text: str) -> None:
        if text.startswith(BYTE_ORDER_MARK):
            text = "\f" + text[1:]  # ignored by Python, too, and as long
        self.text = text
        self.tree = _parsed(text)
        self._lines = split_lines(text) or [""]
        self._starts = list(itertools.accumulate(map(len, self._lines), initial=0))
        self._columns: dict[int, list[int]] = {}
        """of lines that are not ASCII: the column of each byte"""
        self._left = _MOST_REPETITION * max(len(text), 1000)

    def span(self, node: ast.expr) -> tuple[int, int]:
        start = self._offset(node.lineno, node.col_offset)
        return start, self._offset(node.end_lineno or node.lineno, node.end_col_offset or 0)

    def _offset(self, line: int, column: int) -> int:
        content = self._lines[line - 1]
        if not content.isascii():
            if line not in self._columns:
                sizes = (len(character.encode()) for character in content)
                numbered = (itertools.repeat(at, size) for at, size in enumerate(sizes))
                self._columns[line] = [*itertools.chain.from_iterable(numbered), len(content)]
            column = self._columns[line][column]
        return self._starts[line - 1] + column

    def count_reading(self, start: int, end: int) -> None:
        """BadInput if values are read over and over, as for each name of `a = b = c = value`."""
        self._left -= end - start
        if self._left < 0:
            raise BadInput(
                f"its assignments repeat its {len(self.text)} characters more than "
                f"{_MOST_REPETITION} times; expected a script or a configuration, where a value "
                "has a few names and is nested a few levels deep"
            )

    def literals(self, node: ast.expr) -> MappedText:
        """The text of all string literals in an expression, joined as the expression does."""
        start, end = self.span(node)
        self.count_reading(start, end)
        parts = _starts_of_parts(node, self)
        names = sorted(self.span(name) for name in _names_of_variables(node))
        starts_of_names = [first for first, _ in names]
        ends_of_names = list(itertools.accumulate((last for _, last in names), max))
        value, before = MappedTextBuilder(), start
        for match in _LITERAL.finditer(self.text, start, end):
            earlier = bisect_right(starts_of_names, match.start())
            is_name = earlier > 0 and match.start() < ends_of_names[earlier - 1]
            if match["quote"] is None or is_name:
                continue
            starts_part = bisect_right(parts, before) < bisect_right(parts, match.start())
            if value.characters and starts_part:
                value.add_replacement(" ", match.start())
            _decode(match, value)
            before = match.start()
        return value.build()


def _parsed(text: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            # Escapes that Python does not know concern whoever runs the file.
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except SyntaxError as error:
        reason = f"line {error.lineno} is not Python ({error.msg})"
    except ValueError as error:  # null bytes
        reason = f"it is not Python ({error})"
    except (RecursionError, MemoryError):
        reason = "it is nested too deeply to be parsed"
    raise BadInput(f"{reason}; if this is another kind of file, name it .sh, .env or .yaml")


def _names_of_variables(node: ast.expr) -> Iterator[ast.expr]:
    """`"XLA_FLAGS"` in `os.environ["XLA_FLAGS"]` and `os.environ.get("XLA_FLAGS", "")`."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Subscript):
            yield inner.slice
        elif isinstance(inner, ast.Call) and inner.args:
            called = getattr(inner.func, "attr", getattr(inner.func, "id", ""))
            if called in ("get", "getenv", "pop"):
                yield inner.args[0]


def _starts_of_parts(node: ast.expr, source: PythonSource) -> list[int]:
    """Where the elements of lists in an expression start: `" ".join` puts blanks there."""
    lists = [n for n in ast.walk(node) if isinstance(n, (ast.List, ast.Tuple))]
    return sorted(source.span(element)[0] for n in lists for element in n.elts)


def _decode(match: re.Match[str], value: MappedTextBuilder) -> None:
    body, start = match["body"], match.start("body")
    if "r" in match["prefix"].lower():
        value.add(body, start)
        return
    at = 0
    for escape in _ESCAPE.finditer(body):
        value.add(body[at : escape.start()], start + at)
        meaning = _ESCAPES.get(escape[1])
        if meaning is None:
            value.add(escape[0], start + escape.start())
        elif meaning == escape[1]:
            value.add(meaning, start + escape.start() + 1)
        else:
            value.add_replacement(meaning, start + escape.start())
        at = escape.end()
    value.add(body[at:], start + at)


def _items(node: ast.AST, source: PythonSource) -> Iterator[PythonAssignment]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _assigned(target, node.value, source, False)
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        yield from _assigned(node.target, node.value, source, False)
    elif isinstance(node, ast.AugAssign):
        yield from _assigned(node.target, node.value, source, True)
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if key is not None:
                yield from _entry(_text(key), key, value, source)
    elif isinstance(node, ast.Call):
        yield from _called(node, source)


def _assigned(
    target: ast.expr, value: ast.expr, source: PythonSource, appends: bool
) -> Iterator[PythonAssignment]:
    start, end = source.span(value)
    source.count_reading(start, end)
    if isinstance(target, ast.Subscript):
        name = _text(target.slice)
    elif isinstance(target, (ast.Name, ast.Attribute)):
        name = target.id if isinstance(target, ast.Name) else target.attr
        if isinstance(value, ast.Dict) or source.text.find(_FLAG_START, start, end) < 0:
            return
        if not _is_flag_string(name, source.literals(value).text):
            return
    else:
        return
    refers = any(_text(n) == name or getattr(n, "id", "") == name for n in ast.walk(value))
    if name:
        yield _item(name, target, value, source, appends or refers)


def _is_flag_string(name: str, text: str) -> bool:
    """Whether a Python variable holds a flag string."""
    starts = text.lstrip().startswith("--") or name.upper().endswith("XLA_FLAGS")
    return starts and _FLAG_START in text


def _entry(
    name: str | None, key: ast.expr, value: ast.expr, source: PythonSource
) -> Iterator[PythonAssignment]:
    if name:
        yield _item(name, key, value, source, False)


def _called(node: ast.Call, source: PythonSource) -> Iterator[PythonAssignment]:
    method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    if method in _SETTERS and len(node.args) >= 2:
        yield from _entry(_text(node.args[0]), node.args[0], node.args[1], source)
    elif method == "update" or getattr(node.func, "id", "") == "dict":
        for keyword in node.keywords:
            if keyword.arg:
                start = source.span(keyword.value)[0] - len(keyword.arg) - 1
                yield from _keyword(keyword.arg, keyword.value, start, source)


def _keyword(
    name: str, value: ast.expr, start: int, source: PythonSource
) -> Iterator[PythonAssignment]:
    traced = _value(value, source)
    yield PythonAssignment(name, traced, False, False, start, source.span(value)[1])


def _item(
    name: str, key: ast.expr, value: ast.expr, source: PythonSource, appends: bool
) -> PythonAssignment:
    is_option = name.startswith(("xla_", "megascale_")) and isinstance(key, ast.Constant)
    start, end = source.span(key)[0], source.span(value)[1]
    return PythonAssignment(name, _value(value, source), is_option, appends, start, end)


def _value(value: ast.expr, source: PythonSource) -> MappedText:
    start, end = source.span(value)
    bare = value.operand if isinstance(value, ast.UnaryOp) else value
    if isinstance(bare, ast.Constant) and not isinstance(bare.value, str):
        return MappedText.verbatim(source.text[start:end], start)
    traced = source.literals(value)
    if not traced.text and not isinstance(value, ast.Constant):
        return MappedText.verbatim("{" + source.text[start:end] + "}", start)
    return traced


def _text(node: ast.AST) -> str | None:
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return node.value if is_text else None  # type: ignore[attr-defined]
