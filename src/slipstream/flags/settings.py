"""Settings for XLA, JAX and NCCL, each with its location in the file that sets it.

this process's environment · env files · shell and Slurm scripts · YAML and JSON · Python
"""

from __future__ import annotations

import itertools
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from slipstream.errors import BadInput
from slipstream.flags.readers.python import read_python
from slipstream.flags.readers.shell import Assignment, read_env_file, read_shell
from slipstream.flags.readers.source_map import MappedText, flag_words, libtpu_words, split_lines
from slipstream.flags.readers.yaml import ARGUMENT, UNREAD, read_yaml
from slipstream.reading import read_input

Kind = Literal["xla_flags", "env", "libtpu", "compiler_options", "unread"]
FileFormat = Literal["shell", "env", "yaml", "python"]

ENVIRONMENT = "environment"
"""the file name of settings from this process's environment"""

_PREFIXES = (
    *("JAX_", "XLA_", "NCCL_", "CUDA_", "TF_CPP_", "TF_GPU_", "NVSHMEM_", "NVTE_"),
    *("LIBTPU_", "MEGASCALE_", "TPU_"),
)
_FLAGS_OF: dict[str, Kind] = {"XLA_FLAGS": "xla_flags", "LIBTPU_INIT_ARGS": "libtpu"}
_FORMS: dict[str, FileFormat] = {
    ".py": "python",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".json": "yaml",
    ".env": "env",
}
_TPU_STARTS = ("--xla_tpu_", "--megascale_")
"""how flags of TPUs start, in variables of any other name"""
_UNKNOWN_UNTIL_RUN = ("$", "`", "{")


@dataclass(frozen=True)
class SourceLocation:
    """A position in a file; lines and columns count from 1."""

    file: str
    line: int
    column: int
    span: tuple[int, int] | None
    """start and end in the file's text; None if it is in no file"""
    within: tuple[int, int] | None = None
    """start and end of the whole value that it is a part of"""
    is_one_piece: bool = True
    """whether the file holds it as it is, so that it can be rewritten"""

    def __str__(self) -> str:
        return self.file if self.file == ENVIRONMENT else f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True)
class Setting:
    """A flag in XLA_FLAGS or LIBTPU_INIT_ARGS, a variable, or a compile option.

    The kind `unread` is text that names a flag but could not be read as a setting.
    """

    kind: Kind
    name: str
    value: str | None
    """None if a flag has no `=`"""
    place: SourceLocation
    text: str
    """as written, including the name; `place.span` says where"""
    group: int = 0
    """flags of one group reach XLA in one string, where the last of two equal names counts"""

    @property
    def python_type(self) -> str:
        """The type of a compile option in Python source: bool, int and float have no quotes."""
        written = self.text.rpartition(":")[2].strip()
        if self.kind != "compiler_options" or written != self.value:
            return "str"
        if written in ("True", "False"):
            return "bool"
        return "int" if written.lstrip("+-").isdigit() else "float"

    @property
    def is_known(self) -> bool:
        """Whether the file alone gives the value, without `$VARIABLE` or an f-string's `{…}`."""
        return self.value is None or not any(mark in self.value for mark in _UNKNOWN_UNTIL_RUN)


def read_settings(path: str | os.PathLike[str] | None = None) -> list[Setting]:
    """The settings in a file, or without a path, in this process's environment."""
    if path is None:
        return read_environment(os.environ)
    return read_text(read_file(path), file_format(path), str(path))


def read_file(path: str | os.PathLike[str]) -> str:
    """A file's text."""
    expected = "a script, an env file, YAML or Python source"
    data = read_input(path, f"{expected}; without a path, the environment is read")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not a text file; expected {expected}") from None


def file_format(path: str | os.PathLike[str]) -> FileFormat:
    """A file's format, by its ending; a shell script by default."""
    name = Path(path).name
    form = _FORMS.get(Path(name).suffix, "shell")
    return "env" if name.startswith(".env") and name != ".envrc" else form


def read_text(text: str, form: FileFormat = "shell", file: str = "text") -> list[Setting]:
    """The settings in a text."""
    reader = _Reader(text, file)
    if form == "python":
        return list(reader.python())
    if form == "env" and not is_sourced(text):
        return list(reader.assignments(read_env_file(text)))
    if form == "yaml":
        return list(reader.assignments(read_yaml(text, is_relevant)))
    return list(reader.assignments(read_shell(text)))


def read_environment(environ: Mapping[str, str]) -> list[Setting]:
    """The settings in an environment; they can't be rewritten, so they have no span."""
    found: list[Setting] = []
    for name in sorted(environ):
        if not is_relevant(name):
            continue
        value = environ[name]
        reader = _Reader(value, ENVIRONMENT)
        assignment = Assignment(name, MappedText.verbatim(value, 0), frozenset(), 0)
        for one in reader.assignments([assignment]):
            text = one.text if one.kind != "env" else f"{name}={value}"
            place = SourceLocation(ENVIRONMENT, 1, 1, None)
            found.append(Setting(one.kind, one.name, one.value, place, text))
    return found


def is_relevant(name: str) -> bool:
    """Whether XLA, JAX, NCCL or CUDA may read a variable."""
    return name.startswith(_PREFIXES) or name.upper().endswith("XLA_FLAGS")


def is_sourced(text: str) -> bool:
    """Whether a shell sources an env file: it exports variables, or continues lines."""
    return "export " in text or "\\\n" in text


class _Reader:
    """Turns assignments into settings; flags that are joined into one string form a group."""

    def __init__(self, text: str, file: str) -> None:
        self._text = text
        self._file = file
        self._starts = list(itertools.accumulate(map(len, split_lines(text)), initial=0))
        self._groups: dict[str, int] = {}
        self._count = 0

    def assignments(self, assignments: Iterable[Assignment]) -> Iterator[Setting]:
        for one in assignments:
            kind = _flags_kind(one.name, one.value.text)
            if one.name == ARGUMENT:
                continue
            if one.name == UNREAD:
                text = one.value.text
                yield self._found("unread", text, None, one.start, one.start + len(text), 0)
            elif kind is not None:
                flags = self._flags(kind, one.value, self._group(one.name, one.refers_to))
                yield from flags if one.name else map(_bare, flags)
            elif one.name and is_relevant(one.name):
                end = one.value.offsets[-1] + 1 if one.value.offsets else one.start + len(one.name)
                found = self._found("env", one.name, one.value.text, one.start, end, 0)
                is_last = one.start < end and self._text[one.start : end].startswith(one.name)
                yield found if is_last else _in_pieces(found)

    def python(self) -> Iterator[Setting]:
        for item in read_python(self._text):
            kind = _flags_kind(item.name, item.value.text)
            if item.is_option:
                value = item.value.text
                yield self._found("compiler_options", item.name, value, item.start, item.end, 0)
            elif kind is not None:
                refers_to = frozenset([item.name] if item.appends else [])
                yield from self._flags(kind, item.value, self._group(item.name, refers_to))
            elif is_relevant(item.name):
                yield self._found("env", item.name, item.value.text, item.start, item.end, 0)

    def _group(self, name: str, refers_to: frozenset[str]) -> int:
        if not name:
            return self._groups.setdefault("", self._new_group())
        known = [self._groups[other] for other in sorted(refers_to) if other in self._groups]
        self._groups[name] = known[0] if known else self._new_group()
        return self._groups[name]

    def _new_group(self) -> int:
        self._count += 1
        return self._count

    def _flags(self, kind: Kind, value: MappedText, group: int) -> Iterator[Setting]:
        for word in libtpu_words(value) if kind == "libtpu" else flag_words(value):
            if word.text.startswith(_UNKNOWN_UNTIL_RUN):
                continue
            name, equals, content = word.text.partition("=")
            content_or_none = content if equals else None
            found = self._found(
                kind, name.removeprefix("--"), content_or_none, word.start, word.end, group,
                value.extent,
            )  # fmt: skip
            yield found if word.is_verbatim else _in_pieces(found)

    def _found(
        self,
        kind: Kind,
        name: str,
        value: str | None,
        start: int,
        end: int,
        group: int,
        within: tuple[int, int] | None = None,
    ) -> Setting:
        line = min(bisect_right(self._starts, start), max(1, len(self._starts) - 1))
        column = start - self._starts[line - 1] + 1
        place = SourceLocation(self._file, line, column, (start, end), within)
        return Setting(kind, name, value, place, self._text[start:end], group)


def _bare(setting: Setting) -> Setting:
    """A flag that is no part of a value: a word of its own, in a list for example."""
    return replace(setting, place=replace(setting.place, within=None))


def _in_pieces(setting: Setting) -> Setting:
    """A setting that can't be rewritten: the file holds it in pieces, or in another order."""
    return replace(setting, place=replace(setting.place, is_one_piece=False))


def _flags_kind(name: str, value: str) -> Kind | None:
    if name in _FLAGS_OF:
        return _FLAGS_OF[name]
    if not any(start in value for start in ("--xla_", *_TPU_STARTS)):
        return "xla_flags" if name.upper().endswith("XLA_FLAGS") else None
    return "libtpu" if any(start in value for start in _TPU_STARTS) else "xla_flags"
