"""What people want to know of an instruction beside its times: what it is, and where from."""

from __future__ import annotations

from dataclasses import dataclass

from slipstream.profile.profile import Profile
from slipstream.profile.program import Collective, Instruction, Program
from slipstream.profile.semantics.categories import category, kernel_category
from slipstream.profile.semantics.names import describe, phase_of, scope, source


@dataclass(frozen=True)
class Label:
    """One instruction, in words; empty where the profile has no copy of its program."""

    program: str
    instruction: str
    phase: str = ""
    category: str = ""
    scope: str = ""
    source: str = ""
    description: str = ""


def label(profile: Profile, row: int) -> Label:
    """What the event of a row belongs to; of unattributed ones, the kernel's name."""
    events = profile.events
    name, instruction, kernel = (events.text(c, row) for c in ("program", "instruction", "name"))
    found = found_instruction(profile, name, instruction)
    if found is None:
        kind = kernel_category(kernel)
        return Label(name, instruction or kernel, category=kind)
    return label_of(name, *found)


def label_of(program_name: str, program: Program, instruction: Instruction) -> Label:
    """An instruction of a program in words."""
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
    """The program and the instruction of those names, where the profile has them."""
    if not instruction or program not in profile.programs:
        return None
    known = profile.programs[program]
    return (known, known.instruction(instruction)) if instruction in known else None


def collective_of(program: Program, instruction: Instruction) -> Collective | None:
    """What an instruction (or what starts it) moves between devices."""
    start = program.starter(instruction.name)
    if start is None and instruction.is_done:
        start = program.partner(instruction.name)
    return instruction.collective or (start.collective if start is not None else None)


def bytes_of(program: Program, instruction: Instruction) -> int | None:
    """What one execution of a collective or a copy moves; None where that isn't known."""
    from slipstream.profile.attribution.launch_sequence import launch_of

    collective = collective_of(program, instruction)
    if collective is not None:
        return collective.bytes
    start = program.starter(instruction.name) or instruction
    launched = launch_of(program, start)
    return launched.bytes if launched.is_copy and launched.bytes else None
