"""A profile without the names that people chose: of files, scopes, functions, weights and hosts.

    jit(train_step)/transpose(jvp(Llama))/layers_7/mlp/dot_general     model/llama.py:24
    jit(name1)/transpose(jvp(name2))/name3_7/name4/dot_general         file1.py:24

What JAX and XLA call things stays, and so do numbers: phases, layers and times are as they were.
Each name gets the same replacement everywhere; in two recordings, too, if they share their `Names`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import PurePath

from slipstream.masking import MASK
from slipstream.profile.events import Table
from slipstream.profile.profile import Profile, Programs
from slipstream.profile.program import Computation, Instruction, Program
from slipstream.profile.semantics.names import is_jax_word

HOST_EVENT, STEP_EVENT = "host event", "step"
_WORD = re.compile(r"[A-Za-z_][\w\-]*")
_PRIMITIVE = re.compile(r"[a-z][a-z0-9_\-]*")
_STEM = re.compile(r"(.*?)([._\-]?\d+)?")
_PROGRAM = re.compile(r"([^(]+)(\(.*\))?")
_FILE = re.compile(r"\S*/\S+|[\w.\-]+\.(?:pb|gz|zip|sqlite|nsys-rep|json|txt|hlo|mlir|py)\b")
"""a path, or the name of a recording, a program or a script"""
_RUNTIME = re.compile(r"(?:cu|cuda|nccl|hip|roc)[A-Z]\w*|[A-Z]\w*(?:::\w+)+|Mem(?:cpy|set)\w*")


def redacted(profile: Profile, names: Names | None = None) -> Profile:
    """The profile with names replaced, as in other profiles with these `names`."""
    names = names or Names()
    recordings = {PurePath(host.source).name for host in profile.hosts} - {""}
    hosts = tuple(
        replace(host, name=names.of("host", host.name), source="") for host in profile.hosts
    )
    lanes = tuple(
        replace(lane, name=f"thread {number}") if lane.device is None else lane
        for number, lane in enumerate(profile.lanes)
    )
    known = {name: names.program(name) for name in profile.programs}
    readers = {known[name]: _reader(profile, name, names) for name in profile.programs}
    programs = {profile.events.texts[int(i)] for i in set(profile.events["program"].tolist()) if i}
    known |= {name: names.program(name) for name in programs}
    told = {name: names.of("host", name) for name in names.known("host")}
    told |= known | {name: names.of("recording", name) for name in recordings}
    return replace(
        profile,
        hosts=hosts,
        lanes=lanes,
        events=_retexted(profile.events, lambda text: known.get(text, text)),
        host_events=_retexted(profile.host_events, _host_event),
        programs=Programs(readers),
        warnings=tuple(replace(one, message=_said(one.message, told)) for one in profile.warnings),
    )


def _said(text: str, told: dict[str, str]) -> str:
    """A sentence without the names of recordings, hosts and programs, nor paths."""
    longest_first = sorted(told, key=len, reverse=True)
    whole = "|".join(rf"(?<![\w\-/]){re.escape(name)}(?![\w\-/])" for name in longest_first)
    parts = re.split(f"({whole})", text) if whole else [text]
    return "".join(told[part] if part in told else _FILE.sub(MASK, part) for part in parts)


def _reader(profile: Profile, name: str, names: Names) -> Callable[[], Program]:
    return lambda: _program(profile.programs[name], names)


def _retexted(table: Table, change: Callable[[str], str]) -> Table:
    # Equal texts need no merging: a text's number decides what belongs together.
    return replace(table, texts=[change(text) if text else text for text in table.texts])


def _host_event(name: str) -> str:
    return name if _RUNTIME.fullmatch(name) else HOST_EVENT


def _program(program: Program, names: Names) -> Program:
    computations = {name: _computation(one, names) for name, one in program.computations.items()}
    flags = {name: MASK if "/" in value else value for name, value in program.flags.items()}
    label = names.program(program.name)
    entry = computations[program.entry.name]
    return replace(program, name=label, entry=entry, computations=computations, flags=flags)


def _computation(computation: Computation, names: Names) -> Computation:
    # Arguments are named after the model's weights: `params__wqkv__.1`.
    renamed = {
        one.name: names.of("parameter", one.name)
        for one in computation.instructions
        if one.opcode == "parameter"
    }
    made = {one.name: _instruction(one, names, renamed) for one in computation.instructions}
    return replace(computation, instructions=tuple(made.values()), root=made[computation.root.name])


def _instruction(one: Instruction, names: Names, renamed: dict[str, str]) -> Instruction:
    file = names.of("file", one.source_file) + ".py" if one.source_file else ""
    return replace(
        one,
        name=renamed.get(one.name, one.name),
        operands=tuple(renamed.get(name, name) for name in one.operands),
        op_name=names.op_name(one.op_name),
        source_file=file,
    )


class Names:
    """Replacements, numbered in the order in which names were met."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, str]] = {}

    def of(self, kind: str, name: str) -> str:
        known = self._known.setdefault(kind, {})
        return known.setdefault(name, f"{kind}{len(known) + 1}")

    def known(self, kind: str) -> list[str]:
        return [name for name in self._known.get(kind, {}) if name]

    def program(self, name: str) -> str:
        """`program1(605)` for `jit_train_step(605)`."""
        matched = _PROGRAM.fullmatch(name)
        return self.of("program", matched[1]) + (matched[2] or "") if matched else name

    def op_name(self, op_name: str) -> str:
        """An op name whose path, but for its primitive, has other words."""
        head, slash, last = op_name.rpartition("/")
        if slash and _PRIMITIVE.fullmatch(last):
            return self._words(head) + slash + last
        return self._words(op_name)

    def _words(self, text: str) -> str:
        return "/".join(
            part if "->" in part else _WORD.sub(self._word, part) for part in text.split("/")
        )

    def _word(self, matched: re.Match[str]) -> str:
        word = matched[0]
        stem = _STEM.fullmatch(word)
        if is_jax_word(word) or stem is None:
            return word
        return self.of("name", stem[1]) + (stem[2] or "")
