"""HLO text into a Program: what `compiled.as_text()` gives and `xla_dump_to` writes.

HloModule jit_step, is_scheduled=true, …
FileNames … StackFrames …                       tables, in newer versions
%region_0 (x: f32[], y: f32[]) -> f32[] {       `%` and the signature may be missing
  ROOT %add = f32[] add(%x, %y), metadata={op_name="…" source_file="…" source_line=3}
}
ENTRY %main { … }
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from slipstream.errors import BadInput
from slipstream.profile.program import Attribute, Collective, Computation, Instruction, Program
from slipstream.profile.shapes import Shape
from slipstream.reading import DAMAGE, describe
from slipstream.sources.hlo.attributes import (
    frontend_attributes,
    is_between_slices,
    trip_count_of,
)
from slipstream.sources.hlo.collective_fusions import with_collective_fusions
from slipstream.sources.hlo.consistency import check_consistency
from slipstream.sources.hlo.replica_groups import (
    collective_kind,
    describe_collective,
    parse_groups,
    parse_pairs,
)
from slipstream.sources.hlo.scanner import CLOSING, OPENING, PIECE, Scanner
from slipstream.sources.hlo.trip_counts import with_trip_counts

_OPCODE = re.compile(r"[a-z][\w\-]*")
# `{3}: (5, {}, may-alias)`: result 3 is written where parameter 5 was.
_ALIAS = re.compile(r"\{(\d*)[^}]*\}:\s*\((\d+),")
_TABLE = re.compile(r"(FileNames|FunctionNames|FileLocations|StackFrames)[ \t]*\r?\n")
_ROW = re.compile(r"\s*(\d+)\s+(?:\"((?:\\.|[^\"\\])*)\"|\{([^}\n]*)\})")
# Words are tried from their start only: a long one would take quadratic time.
_FIELD = re.compile(r'\b(\w++)=(?:"((?:\\.|[^"\\])*)"|(\{(?:[^{}]|\{[^{}]*+\})*+\}|[^\s}]+))')
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|[0-7]{3}|.)", re.S)
_INT = re.compile(r"-?\d+")
_INTS = re.compile(r"\{[\d,\s]*\}")
_CALLS = ("calls", "to_apply", "body", "condition", "true_computation", "false_computation")
_CALL_LISTS = ("branch_computations", "called_computations")
# Attributes that have their own field in an Instruction, or don't change what it computes.
_ELSEWHERE = frozenset(
    (*_CALLS, *_CALL_LISTS, "metadata", "backend_config", "control-predecessors", "sharding",
     "frontend_attributes", "replica_groups", "channel_id", "source_target_pairs", "index", "kind",
     "custom_call_target", "use_global_device_ids", "origin", "async_execution_thread",
     "operand_layout_constraints", "api_version", "custom_call_has_side_effect", "schedule",
     "constrain_layout", "statistics", "is_host_transfer")
)  # fmt: skip


def program_from_text(
    text: str,
    *,
    source: str = "HLO text",
    jaxlib_version: str | None = None,
    flags: Mapping[str, str] | None = None,
) -> Program:
    """The program in HLO text; BadInput, with the line, if there is none."""
    reader = _Reader(text, source)
    try:
        program = reader.program(jaxlib_version, flags or {})
    except DAMAGE as error:
        reader.fail(f"a valid program ({describe(error)})")
    try:
        check_consistency(program)
    except ValueError as error:
        raise BadInput(
            f"{source}: program {program.name!r:.80} contradicts itself: {error}; "
            "write it again with compiled.as_text()"
        ) from None
    return program


@dataclass(slots=True)
class _Draft:
    """A computation while it is being read."""

    name: str
    is_entry: bool
    instructions: list[tuple[Instruction, dict[str, str]]] = field(default_factory=list)


class _Reader(Scanner):
    def __init__(self, text: str, source: str) -> None:
        super().__init__(text, source)
        self.files: dict[int, str] = {}
        self.locations: dict[int, dict[str, str]] = {}
        self.frames: dict[int, dict[str, str]] = {}
        self.devices: int | None = None

    def program(self, jaxlib_version: str | None, flags: Mapping[str, str]) -> Program:
        self.skip()
        if not self.word_follows("HloModule"):
            self.fail("'HloModule' and a name")
        name = self.name()
        header = self.attributes()
        partitions = int(header.get("num_partitions", 1)) * int(header.get("replica_count", 1))
        self.devices = partitions if partitions > 1 else None
        self.tables()
        drafts = list(self.computations())
        entry = [draft.name for draft in drafts if draft.is_entry]
        if not entry:
            self.fail("a computation that starts with ENTRY")
        built = {draft.name: draft for draft in drafts}
        computations = {draft.name: self.finish(draft, built) for draft in drafts}
        computations = with_trip_counts(with_collective_fusions(computations))
        frontend = dict(_fields(header.get("frontend_attributes", "")))
        return Program(
            name=name,
            entry=computations[entry[0]],
            computations=computations,
            fingerprint=frontend.get("fingerprint_before_lhs"),
            jaxlib_version=jaxlib_version,
            flags=dict(flags),
            is_scheduled=header.get("is_scheduled") == "true",
            aliases={
                int(found[1] or 0): int(found[2])
                for found in _ALIAS.finditer(header.get("input_output_alias", ""))
            },
        )

    def tables(self) -> None:
        self.skip()
        while (match := _TABLE.match(self.text, self.at)) is not None:
            self.at = match.end()
            while (row := _ROW.match(self.text, self.at)) is not None:
                self.at = row.end()
                number = int(row[1])
                if match[1] == "FileNames":
                    self.files[number] = _unescape(row[2] or "")
                elif match[1] == "FileLocations":
                    self.locations[number] = dict(_fields(row[3] or ""))
                elif match[1] == "StackFrames":
                    self.frames[number] = dict(_fields(row[3] or ""))
            self.skip()

    def computations(self) -> Iterator[_Draft]:
        self.skip()
        while self.at < len(self.text):
            draft = _Draft(is_entry=self.word_follows("ENTRY"), name=self.name())
            if self.take("("):
                self.balanced(")")
                self.expect(")")
                if self.take("->"):
                    self.shape()
            self.expect("{")
            while not self.take("}"):
                draft.instructions.append(self.instruction(draft))
            self.attributes()  # an execution thread may follow the closing brace
            yield draft
            self.skip()

    def instruction(self, draft: _Draft) -> tuple[Instruction, dict[str, str]]:
        is_root = self.word_follows("ROOT")
        name = self.name()
        self.expect("=")
        shape = self.shape()
        opcode = self.word(_OPCODE, "an opcode")[0]
        self.expect("(")
        arguments = self.balanced(")")
        self.expect(")")
        attributes = self.attributes()
        metadata = dict(_fields(attributes.get("metadata", "")))
        source_file, source_line = self.source_of(metadata)
        config = _config(attributes.get("backend_config", ""))
        is_literal = opcode in ("parameter", "constant")
        made = Instruction(
            name=name,
            opcode=opcode,
            shape=shape,
            operands=() if is_literal else _operands(arguments),
            computation=draft.name,
            position=len(draft.instructions),
            op_name=metadata.get("op_name", ""),
            source_file=source_file,
            source_line=source_line,
            scheduling_name=metadata.get("scheduling_name", ""),
            deduplicated_name=metadata.get("deduplicated_name", ""),
            called=_called(attributes),
            fusion_kind=attributes.get("kind", "") if opcode.startswith("fusion") else "",
            custom_call_target=_unquote(attributes.get("custom_call_target", "")),
            backend_config=config,
            trip_count=trip_count_of(config) if opcode == "while" else None,
            is_root=is_root,
            parameter_number=_number(arguments) if opcode == "parameter" else None,
            tuple_index=_number(attributes.get("index", "")),
            control_predecessors=_operands(attributes.get("control-predecessors", "{}")[1:-1]),
            attributes=_attributes(attributes, arguments if opcode == "constant" else None),
        )
        return made, attributes

    def source_of(self, metadata: Mapping[str, str]) -> tuple[str, int | None]:
        if "source_file" in metadata:
            return metadata["source_file"], _number(metadata.get("source_line", ""))
        frame = self.frames.get(_number(metadata.get("stack_frame_id", "")) or 0, {})
        location = self.locations.get(_number(frame.get("file_location_id", "")) or 0, {})
        file = self.files.get(_number(location.get("file_name_id", "")) or 0, "")
        return file, _number(location.get("line", "")) if file else None

    # The rest needs the whole text: shapes of operands, roots, and what an async-start wraps.

    def finish(self, draft: _Draft, drafts: Mapping[str, _Draft]) -> Computation:
        if not draft.instructions:
            self.fail(f"instructions in {draft.name}")
        shapes = {i.name: i.shape for i, _ in draft.instructions}
        made: dict[str, Instruction] = {}
        for instruction, attributes in draft.instructions:
            for name in instruction.operands:
                if name not in shapes:
                    self.fail(f"operand {name} of {instruction.name} in {draft.name}")
            instruction = _plain_async(instruction, made, drafts)
            inner = [shapes[name] for name in instruction.operands]
            collective = self.collective(instruction, inner, attributes)
            if collective is not None:
                instruction = replace(instruction, collective=collective)
            made[instruction.name] = instruction
        root = next((i for i in made.values() if i.is_root), None)
        if root is None:
            root = replace(next(reversed(made.values())), is_root=True)
            made[root.name] = root
        return Computation(draft.name, tuple(made.values()), root)

    def collective(
        self, instruction: Instruction, operands: list[Shape], attributes: Mapping[str, str]
    ) -> Collective | None:
        if (
            collective_kind(instruction.opcode) is None
            or attributes.get("is_host_transfer") == "true"
            and not is_between_slices(dict(_fields(attributes.get("frontend_attributes", ""))))
        ):
            return None
        try:
            groups = parse_groups(attributes.get("replica_groups", "{}"))
        except ValueError as error:
            self.fail(f"replica groups of {instruction.name} in a known notation ({error})")
        return describe_collective(
            instruction.opcode,
            instruction.shape,
            operands,
            groups=groups,
            pairs=parse_pairs(attributes.get("source_target_pairs", "")),
            channel_id=_number(attributes.get("channel_id", "")),
            devices=self.devices,
            backend_config=instruction.backend_config,
        )


def _plain_async(
    instruction: Instruction, made: Mapping[str, Instruction], drafts: Mapping[str, _Draft]
) -> Instruction:
    """`async-start` renamed after the operation it starts: `all-gather-start`."""
    if not instruction.opcode.startswith("async-"):
        return instruction
    end = instruction.opcode.removeprefix("async-")
    if end == "start":
        wrapped = drafts.get(instruction.called[0]) if instruction.called else None
        if wrapped is None or not wrapped.instructions:
            return instruction
        inner = [i for i, _ in wrapped.instructions]
        base = next((i for i in inner if i.is_root), inner[-1]).opcode
    else:
        start = made.get(instruction.operands[0]) if instruction.operands else None
        base = start.opcode.rsplit("-", 1)[0] if start else "async"
    return replace(instruction, opcode=f"{base}-{end}")


def _operands(text: str) -> tuple[str, ...]:
    """The names in `f32[2]{0} %a, /*index=5*/%b`; older text has shapes before names."""
    names: list[str] = []
    depth = 0
    last = ""
    for match in PIECE.finditer(text):
        piece = match.group()
        if piece in OPENING:
            depth += 1
        elif piece in CLOSING:
            depth -= 1
        elif piece == "," and depth == 0:
            names.append(last)
            last = ""
        elif depth == 0 and piece.strip() and not piece.startswith("/*"):
            last = piece.split()[-1]
    if last:
        names.append(last)
    return tuple(name.lstrip("%").strip('"') for name in names)


def _called(attributes: Mapping[str, str]) -> tuple[str, ...]:
    if "body" in attributes and "condition" in attributes:
        return (attributes["body"].lstrip("%"), attributes["condition"].lstrip("%"))
    for key in _CALL_LISTS:
        if key in attributes:
            return _operands(attributes[key][1:-1])
    return tuple(attributes[key].lstrip("%") for key in _CALLS if key in attributes)


def _attributes(attributes: Mapping[str, str], literal: str | None) -> dict[str, Attribute]:
    found: dict[str, Attribute] = {}
    for key, value in attributes.items():
        if key == "iota_dimension":
            found["dimensions"] = (int(value),)
        elif key not in _ELSEWHERE:
            found[key] = _value(value)
    if literal is not None:
        found["literal"] = literal
    if frontend := attributes.get("frontend_attributes", ""):
        found |= frontend_attributes(dict(_fields(frontend)))
    return found


@lru_cache(maxsize=4096)
def _value(text: str) -> Attribute:
    if _INT.fullmatch(text):
        return int(text)
    if _INTS.fullmatch(text):
        return tuple(map(int, _INT.findall(text)))
    return text


def _fields(text: str) -> Iterator[tuple[str, str]]:
    """`key="value" key=value` pairs inside braces, without the quotes."""
    for key, quoted, bare in _FIELD.findall(text):
        yield key, _unescape(quoted) if quoted else bare


def _config(text: str) -> str:
    """A backend configuration as JSON; older text quotes it."""
    return _unquote(text) if text.startswith('"') else text


def _unquote(text: str) -> str:
    return _unescape(text[1:-1]) if text.startswith('"') else text


def _unescape(text: str) -> str:
    return _ESCAPE.sub(_escaped, text) if "\\" in text else text


def _escaped(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] == "x" and len(code) == 3:
        return chr(int(code[1:], 16))
    if len(code) == 3:
        return chr(int(code, 8))
    return {"n": "\n", "t": "\t", "r": "\r"}.get(code, code)


def _number(text: str) -> int | None:
    return int(text) if _INT.fullmatch(text.strip()) else None
