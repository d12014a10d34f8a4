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
from typing import TYPE_CHECKING

from slipstream.flags.readers.shell import Assignment, read_shell
from slipstream.flags.readers.source_map import MappedText
from slipstream.flags.readers.yaml_scalars import mapped_scalar
from slipstream.flags.readers.yaml_template import read_yaml_template

if TYPE_CHECKING:
    from yaml import MappingNode, Node

_NAMED_VALUE = re.compile(r"([A-Z][A-Z0-9_]*)=")
_FLAG = re.compile(r"--xla_\w+|\bXLA_FLAGS\b")
_COMMENT = re.compile(r"(?:^|[ \t])#(?!SBATCH)")
_BYTE_ORDER_MARK = "\ufeff"
UNREAD = "unread"
"""the name of an assignment that stands for text which was not read"""

IsRelevant = Callable[[str], bool]


def read_yaml(text: str, is_relevant: IsRelevant) -> Iterator[Assignment]:
    """Entries with relevant names, the assignments of scripts, and text that was not read."""
    documents = _documents(text)
    if documents is None:
        found = list(read_yaml_template(text, is_relevant))
    else:
        reader = _Reader(text, is_relevant)
        found = [one for document in documents for one in reader.settings(document)]
    # An alias refers to what its anchor already gave.
    unique = {(one.name, one.start, one.value.offsets[:1]): one for one in found}
    ordered = sorted(unique.values(), key=lambda one: one.start)
    yield from ordered
    yield from _unread(text, ordered)


def _documents(text: str) -> list[Node] | None:
    """The documents' root nodes; None if this is not YAML."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    content = text.removeprefix(_BYTE_ORDER_MARK)
    # JSON may be indented with tabs, YAML may not; a space has the same length.
    for candidate in dict.fromkeys([content, content.replace("\t", " ")]):
        try:
            return [root for root in yaml.compose_all(candidate, loader) if root is not None]
        except (yaml.YAMLError, RecursionError):
            continue
    return None


class _Reader:
    """Walks the nodes of a file; a node that several aliases refer to is visited once."""

    def __init__(self, text: str, is_relevant: IsRelevant) -> None:
        self._text = text
        self._base = len(text) - len(text.removeprefix(_BYTE_ORDER_MARK))
        self._is_relevant = is_relevant
        self._visited: set[int] = set()

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
                for item in node.value:
                    if (scalar := self._scalar(item)) is not None:
                        yield from self._item(scalar)
                    else:
                        pending.append(item)
            elif (scalar := self._scalar(node)) is not None:
                yield from self._script(scalar)

    def _scalar(self, node: Node) -> MappedText | None:
        import yaml

        if not isinstance(node, yaml.ScalarNode):
            return None
        return mapped_scalar(node, self._text, self._base)

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
    for match in _FLAG.finditer(text):
        line = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
        if match.start() in read or _COMMENT.search(line):
            continue
        if match[0] == "XLA_FLAGS" and _is_mention(text, match):
            continue
        end = text.find("\n", match.start())
        rest = text[match.start() : len(text) if end < 0 else end]
        yield Assignment(
            UNREAD, MappedText.verbatim(rest, match.start()), frozenset(), match.start()
        )


def _is_mention(text: str, match: re.Match[str]) -> bool:
    """`$XLA_FLAGS` uses the variable; a name without a flag after it sets nothing that matters."""
    before, after = text[: match.start()], text[match.end() :].lstrip("\"' \t")
    return before.endswith(("$", "${", "_")) or not after.startswith(("=", ":", ","))
