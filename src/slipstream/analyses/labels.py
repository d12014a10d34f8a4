"""Labels of an instruction: phase, category, scope, source line and description."""

from __future__ import annotations

from dataclasses import dataclass

from slipstream.profile.profile import Profile
from slipstream.profile.program import Collective, Instruction, Program
from slipstream.profile.semantics.categories import category, kernel_category
from slipstream.profile.semantics.names import describe, phase_of, scope, source


@dataclass(frozen=True)
class Label:
    """The labels of one instruction; empty if the profile does not contain its program."""

    program: str
    instruction: str
    phase: str = ""
    category: str = ""
    scope: str = ""
    source: str = ""
    description: str = ""


LABEL_COLUMNS = ("program", "instruction", "name")
"""what the label of an event depends on"""


def label(profile: Profile, row: int) -> Label:
    """The labels of an event's instruction; for an unattributed event, its kernel name."""
    events = profile.events
    name, instruction, kernel = (events.text(column, row) for column in LABEL_COLUMNS)
    found = found_instruction(profile, name, instruction)
    if found is None:
        kind = kernel_category(kernel)
        return Label(name, instruction or kernel, category=kind)
    return label_of(name, *found)


def label_of(program_name: str, program: Program, instruction: Instruction) -> Label:
    """The labels of an instruction."""
    return Label(
        program_name,
        instruction.name,
        phase_of(program, instruction),
        category(program, instruction),
        scope(instruction.op_name),
        source(program, instruction),
        describe(program, instruction),
    )


def found_instruction(
    profile: Profile, program: str, instruction: str
) -> tuple[Program, Instruction] | None:
    """The program and instruction of those names, if the profile has them."""
    if not instruction or program not in profile.programs:
        return None
    known = profile.programs[program]
    return (known, known.instruction(instruction)) if instruction in known else None


def collective_of(program: Program, instruction: Instruction) -> Collective | None:
    """The collective of an instruction, or of the start that it belongs to."""
    start = program.starter(instruction.name)
    if start is None and instruction.is_done:
        start = program.partner(instruction.name)
    return instruction.collective or (start.collective if start is not None else None)


def bytes_of(program: Program, instruction: Instruction) -> int | None:
    """Bytes that one execution of a collective or copy moves; None if unknown."""
    from slipstream.profile.attribution.launch_sequence import launch_of

    collective = collective_of(program, instruction)
    if collective is not None:
        return collective.bytes
    start = program.starter(instruction.name) or instruction
    launched = launch_of(program, start)
    return launched.bytes if launched.is_copy and launched.bytes else None
