"""Settings in YAML and JSON files.

Kubernetes and xpk write lists; Ray, MaxText and docker-compose write maps, some on one line:

    env:                            env_vars: &common           env: [{name: XLA_FLAGS,
    - name: XLA_FLAGS                 XLA_FLAGS: >-                    value: "--xla_…"}]
      value: "--xla_…"                  --xla_… --xla_…         args: ["-c", "XLA_FLAGS=… python"]

Any other scalar that sets a variable or holds a flag is read as a shell script.  Templates (Helm,
Jinja) are not YAML and are read line by line.  Text that names a flag but was not read as a setting
is returned too, so that nobody takes it for checked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from slipstream.errors import BadInput
from slipstream.flags.readers.shell import Assignment, read_shell
from slipstream.flags.readers.source_map import BYTE_ORDER_MARK, MappedText, split_lines
from slipstream.flags.readers.yaml_scalars import mapped_scalar
from slipstream.flags.readers.yaml_template import read_yaml_template

if TYPE_CHECKING:
    from yaml import MappingNode, Node, ScalarNode, SequenceNode

_NAMED_VALUE = re.compile(r"([A-Z][A-Z0-9_]*)=")
_FLAG = re.compile(r"--xla_\w+|\bXLA_FLAGS\b")
_SETS = re.compile(r"[\"' \t]*[=:,]")
_PROGRAM = re.compile(r"[\w./-]*(?:python[\d.]*|sh|bash|\.py|\.sh|srun|mpirun|torchrun|env)")
_COMMENT = re.compile(r"(?:^|[ \t])#(?!SBATCH)")
_ARGUMENTS = ("args", "command", "cmd", "entrypoint", "argv")
"""keys of lists that hold the words of a program"""
_MOST_DEPTH = 200
"""a real file has ten levels; libyaml overruns its stack at some ten thousand"""
_MOST_REPETITION = 100
"""how much longer than the file the values may be once every alias is replaced by its value"""
_MOST_SHOWN = 200
"""characters of a text that was not read"""
UNREAD = "unread"
"""the name of an assignment that stands for text which was not read"""
ARGUMENT = "argument"
"""the name of an assignment that stands for an argument of somebody's program"""

IsRelevant = Callable[[str], bool]


def read_yaml(text: str, is_relevant: IsRelevant) -> Iterator[Assignment]:
    """Entries with relevant names, the assignments of scripts, and text that was not read."""
    roots = documents(text)
    if roots is None:
        found = list(read_yaml_template(text, is_relevant))
    else:
        reader = _Reader(text, is_relevant)
        found = list(_limited(text, (one for root in roots for one in reader.settings(root))))
    # An alias refers to what its anchor already gave.
    unique = {(one.name, one.start, one.value.offsets[:1]): one for one in found}
    ordered = sorted(unique.values(), key=lambda one: one.start)
    yield from ordered
    yield from _unread(text, ordered)


def _limited(text: str, found: Iterable[Assignment]) -> Iterator[Assignment]:
    """The assignments; BadInput if aliases repeat the text over and over."""
    left = _MOST_REPETITION * max(len(text), 1000)
    for one in found:
        left -= len(one.value.text)
        if left < 0:
            raise BadInput(
                f"the aliases of this YAML file repeat its {len(text)} characters more than "
                f"{_MOST_REPETITION} times; expected a job file, whose values are written once"
            )
        yield one


def documents(text: str) -> list[Node] | None:
    """The documents' root nodes; None if this is not YAML."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    content = text.removeprefix(BYTE_ORDER_MARK)
    # JSON may be indented with tabs, YAML may not; a space has the same length.
    for candidate in dict.fromkeys([content, content.replace("\t", " ")]):
        try:
            if _is_too_deep(candidate, loader):
                return None
            return [root for root in yaml.compose_all(candidate, loader) if root is not None]
        except (yaml.YAMLError, RecursionError):
            continue
    return None


def _is_too_deep(content: str, loader: Any) -> bool:
    """Whether collections are nested too deeply; composing their nodes recurses."""
    import yaml

    depth = 0
    for event in yaml.parse(content, loader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > _MOST_DEPTH:
            return True
    return False


def scalar_in(node: ScalarNode, text: str) -> MappedText | None:
    """A scalar of a file, with the position of each character; None if that can't be told."""
    return mapped_scalar(node, text, len(text) - len(text.removeprefix(BYTE_ORDER_MARK)))


class _Reader:
    """Walks the nodes of a file; a node that several aliases refer to is visited once."""

    def __init__(self, text: str, is_relevant: IsRelevant) -> None:
        self._text = text
        self._is_relevant = is_relevant
        self._visited: set[int] = set()
        self._scalars: dict[int, MappedText | None] = {}
        self._words: set[int] = set()
        """sequences of a program's words"""

    def settings(self, root: Node) -> Iterator[Assignment]:
        import yaml

        pending = [root]
        while pending:
            node = pending.pop()
            if id(node) in self._visited:
                continue
            self._visited.add(id(node))
            if isinstance(node, yaml.MappingNode):
                yield from self._mapping(node, pending)
            elif isinstance(node, yaml.SequenceNode):
                yield from self._sequence(node, pending)
            elif (scalar := self._scalar(node)) is not None:
                yield from self._script(scalar)

    def _scalar(self, node: Node) -> MappedText | None:
        import yaml

        if not isinstance(node, yaml.ScalarNode):
            return None
        if id(node) not in self._scalars:
            self._scalars[id(node)] = scalar_in(node, self._text)
        return self._scalars[id(node)]

    def _sequence(self, node: SequenceNode, pending: list[Node]) -> Iterator[Assignment]:
        """The settings of a list; in one of a program's words, flags are the program's own."""
        scalars = [(item, self._scalar(item)) for item in node.value]
        words = [scalar.text for _, scalar in scalars if scalar is not None]
        has_program = id(node) in self._words or bool(words and _PROGRAM.fullmatch(words[0]))
        for item, scalar in scalars:
            if id(item) in self._visited:
                continue
            if scalar is None:
                pending.append(item)
                continue
            self._visited.add(id(item))
            if has_program and scalar.text.startswith("--xla_"):
                yield Assignment(ARGUMENT, scalar, frozenset(), scalar.offsets[0])
            else:
                yield from self._item(scalar)

    def _mapping(self, node: MappingNode, pending: list[Node]) -> Iterator[Assignment]:
        """The settings of a mapping; adds to `pending` the values that hold none themselves."""
        entries = [(self._scalar(key), value) for key, value in node.value]
        values = {key.text: self._scalar(value) for key, value in entries if key is not None}
        name, value = values.get("name"), values.get("value")
        is_pair = name is not None and bool(name.text) and self._is_relevant(name.text)
        if is_pair and name is not None and value is not None:
            yield Assignment(name.text, value, frozenset(), name.offsets[0])
        for key, entry in entries:
            if is_pair and key is not None and key.text in ("name", "value"):
                continue
            scalar = self._scalar(entry)
            if key is not None and scalar is not None and self._is_relevant(key.text):
                yield Assignment(key.text, scalar, frozenset(), key.offsets[0])
            else:
                pending.append(entry)
                if key is not None and key.text.lower() in _ARGUMENTS:
                    self._words.add(id(entry))

    def _item(self, item: MappedText) -> Iterator[Assignment]:
        """docker-compose's `- NAME=value`: no shell reads it, blanks are part of the value."""
        match = _NAMED_VALUE.match(item.text)
        is_command = re.search(r"\s(?!--)\w+ ", item.text)  # NAME=value python train.py
        if match is None or is_command or not self._is_relevant(match[1]):
            yield from self._script(item)
        else:
            yield Assignment(match[1], item.slice(match.end()), frozenset(), item.offsets[0])

    def _script(self, node: MappedText) -> Iterator[Assignment]:
        """A shell script, its assignments moved to where they are in the file."""
        if "=" not in node.text and "--xla_" not in node.text:
            return
        for one in read_shell(node.text):
            if not one.name or self._is_relevant(one.name) or "--xla_" in one.value.text:
                offsets = tuple(node.offsets[at] for at in one.value.offsets)
                value = MappedText(one.value.text, offsets)
                yield replace(one, value=value, start=node.offsets[one.start])


def _unread(text: str, found: Iterable[Assignment]) -> Iterator[Assignment]:
    """Names of flags, outside comments, that no assignment holds."""
    read: set[int] = set()
    for one in found:
        read |= {one.start, *one.value.offsets}
    start = 0
    for line in split_lines(text):
        comment = _COMMENT.search(line)
        for match in _FLAG.finditer(line, 0, comment.start() if comment else len(line)):
            at = start + match.start()
            if at in read or match[0] == "XLA_FLAGS" and _is_mention(line, match):
                continue
            rest = line[match.start() : match.start() + _MOST_SHOWN].rstrip("\r\n")
            yield Assignment(UNREAD, MappedText.verbatim(rest, at), frozenset(), at)
        start += len(line)


def _is_mention(text: str, match: re.Match[str]) -> bool:
    """`$XLA_FLAGS` uses the variable; a name without a flag after it sets nothing that matters."""
    before = text[max(0, match.start() - 2) : match.start()]
    return before.endswith(("$", "${", "_")) or _SETS.match(text, match.end()) is None
