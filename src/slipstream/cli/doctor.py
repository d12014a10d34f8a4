"""`slipstream doctor`: check this machine and its environment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from slipstream.cli.common import JsonOption, show, show_json
from slipstream.errors import CheckFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slipstream.doctor.machine_facts import MachineFacts
    from slipstream.doctor.problems import Problem
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
    from slipstream.doctor.problems import ERROR, LEVELS
    from slipstream.outputs.terminal.doctor import doctor_json, render_doctor

    facts = read_machine_facts(is_profiled=profiling)
    findings = [*examine(facts, _program(program)), *_libtpu_flags(facts)]
    findings.sort(key=lambda finding: LEVELS.index(finding.level))
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


def _libtpu_flags(facts: MachineFacts) -> Iterator[Problem]:
    """What `flags lint` says of LIBTPU_INIT_ARGS, if there is something to read it."""
    from slipstream.doctor.problems import ERROR, WARNING, Problem
    from slipstream.flags.catalogue.catalogue import default_catalogue
    from slipstream.flags.catalogue.libtpu import VARIABLE, libtpu_catalogue
    from slipstream.flags.lint.lint import lint
    from slipstream.flags.settings import read_environment

    if VARIABLE not in facts.environment or not (facts.tpus or "libtpu" in facts.packages):
        return
    settings = read_environment({VARIABLE: facts.environment[VARIABLE]})
    for found in lint(settings, default_catalogue(), libtpu=libtpu_catalogue()):
        if found.severity != "note":
            level, why = (
                (ERROR, "libtpu reads its flags when the job starts, and accepts all or none")
                if found.severity == "abort"
                else (WARNING, "the job runs, but not as intended")
            )
            fix = f"write {found.fix}" if found.fix else "slipstream flags lint"
            yield Problem("libtpu-flags", level, f"{VARIABLE}: {found.message}", why, fix)


def _program(path: str | None) -> Program | None:
    if path is None:
        return None
    from slipstream.sources.hlo.reader import read_program

    return read_program(path)
