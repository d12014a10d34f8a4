"""`slipstream doctor`: check this machine and its environment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from slipstream.cli.common import JsonOption, show, show_json
from slipstream.errors import CheckFailed

if TYPE_CHECKING:
    from slipstream.profile.program import Program


def doctor(
    program: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Compiled program (HLO) to check as well."),
    ] = None,
    profiling: Annotated[
        bool, typer.Option("--profiling", help="Check for a run that is profiled or uses PGLE.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 if there are errors.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Check this machine and its environment, and print fixes.

    Run it where the training runs: on the node, in the container, with its variables set.
    """
    from slipstream.doctor.doctor import examine
    from slipstream.doctor.machine_facts import read_machine_facts
    from slipstream.doctor.problems import ERROR
    from slipstream.outputs.terminal.doctor import doctor_json, render_doctor

    facts = read_machine_facts(is_profiled=profiling)
    findings = examine(facts, _program(program))
    if json:
        show_json(doctor_json(facts, findings))
    else:
        show(lambda width: render_doctor(facts, findings, width))
    errors = [finding.code for finding in findings if finding.level == ERROR]
    if strict and errors:
        raise CheckFailed(
            f"{len(errors)} of the findings are errors ({', '.join(errors)}), expected none; "
            "each has the command that fixes it"
        )


def _program(path: str | None) -> Program | None:
    if path is None:
        return None
    from slipstream.sources.hlo.reader import read_program

    return read_program(path)
