"""Settings in YAML and JSON files.

Kubernetes and xpk write lists, Ray, MaxText and docker-compose maps, in blocks or in one line:

    env:                            env_vars: &common           env: [{name: XLA_FLAGS,
    - name: XLA_FLAGS                 XLA_FLAGS: >-                    value: "--xla_…"}]
      value: "--xla_…"                  --xla_… --xla_…         args: ["-c", "XLA_FLAGS=… python"]

Other texts that set a variable or hold a flag are shell scripts.  What names a flag and was read as
nothing is handed back too, so that nobody takes it for checked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from slipstream.flags.readers.shell import Assignment, read_shell
from slipstream.flags.readers.source_map import MappedText
from slipstream.flags.readers.yaml_template import read_yaml_lines
from slipstream.flags.readers.yaml_tree import List, Map, Node, YamlError, read_tree

_NAMED_VALUE = re.compile(r"([A-Z][A-Z0-9_]*)=")
_FLAG = re.compile(r"--xla_\w+|\bXLA_FLAGS\b")
_COMMENT = re.compile(r"(?:^|[ \t])#(?!SBATCH)")
UNREAD = "unread"
"""the name of an assignment that stands for text which was not read"""

Watch = Callable[[str], bool]


def read_yaml(text: str, is_watched: Watch) -> Iterator[Assignment]:
    """Entries whose names `is_watched` knows, the assignments of scripts, and what was not read."""
    try:
        found = [one for tree in read_tree(text) for one in _Walk(is_watched).node(tree)]
    except YamlError:
        found = list(read_yaml_lines(text, is_watched))
    # An alias shows what its anchor shows.
    unique = {(one.name, one.start, one.value.offsets[:1]): one for one in found}
    ordered = sorted(unique.values(), key=lambda one: one.start)
    yield from ordered
    yield from _unread(text, ordered)


@dataclass(frozen=True)
class _Walk:
    is_watched: Watch

    def node(self, node: Node) -> Iterator[Assignment]:
        if isinstance(node, Map):
            yield from self._map(node)
        elif isinstance(node, List):
            for item in node.items:
                yield from self._item(item)
        else:
            yield from self._script(node)

    def _map(self, node: Map) -> Iterator[Assignment]:
        named = {key.text: value for key, value in node.entries}
        name, value = named.get("name"), named.get("value")
        is_pair = isinstance(name, MappedText) and self.is_watched(name.text) and bool(name.offsets)
        if is_pair and isinstance(name, MappedText) and isinstance(value, MappedText):
            yield Assignment(name.text, value, frozenset(), name.offsets[0])
        for key, entry in node.entries:
            if is_pair and key.text in ("name", "value"):
                continue
            if self.is_watched(key.text) and isinstance(entry, MappedText):
                yield Assignment(key.text, entry, frozenset(), key.offsets[0])
            else:
                yield from self.node(entry)

    def _item(self, item: Node) -> Iterator[Assignment]:
        """docker-compose's `- NAME=value`: no shell reads it, blanks are part of it."""
        match = _NAMED_VALUE.match(item.text) if isinstance(item, MappedText) else None
        if match is None or not isinstance(item, MappedText) or not self.is_watched(match[1]):
            yield from self.node(item)
        elif re.search(r"\s(?!--)\w+ ", item.text):
            yield from self._script(item)  # a command follows: NAME=value python train.py
        else:
            yield Assignment(match[1], item.slice(match.end()), frozenset(), item.offsets[0])

    def _script(self, node: MappedText) -> Iterator[Assignment]:
        """A shell script, its assignments moved to where they stand in the file."""
        if "=" not in node.text and "--xla_" not in node.text:
            return
        for one in read_shell(node.text):
            if not one.name or self.is_watched(one.name) or "--xla_" in one.value.text:
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
    """`$XLA_FLAGS` uses the variable; a name without a flag behind it sets nothing that matters."""
    before, after = text[: match.start()], text[match.end() :].lstrip("\"' \t")
    return before.endswith(("$", "${", "_")) or not after.startswith(("=", ":", ","))
