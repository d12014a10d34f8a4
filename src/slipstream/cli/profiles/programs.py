"""`slipstream programs`: the programs of a profile, or one in detail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from slipstream.cli.common import (
    DumpsOption,
    JsonOption,
    PathArgument,
    RunOption,
    open_profile,
    show,
    show_json,
    with_tables,
)
from slipstream.did_you_mean import no_such
from slipstream.errors import BadInput

if TYPE_CHECKING:
    from slipstream.profile.profile import Profile
    from slipstream.profile.program import Program


@with_tables
def programs(
    path: PathArgument,
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Program to describe.", show_default=False),
    ] = None,
    run: RunOption = None,
    dumps: DumpsOption = None,
    json: JsonOption = False,
) -> None:
    """List the programs that ran, or describe one.

    The program with the most device time comes first. NAME may be a program's name if that is
    unique, or `name(id)`.
    """
    profile = open_profile(path, run, dumps)
    if name is not None:
        return _show_one(find_program(profile, name), json)
    from slipstream.analyses.summary import programs as analyse

    found = analyse(profile)
    if json:
        from slipstream.outputs.json import programs_json

        return show_json(programs_json(found))
    from slipstream.outputs.terminal.programs import render_programs

    show(lambda width: render_programs(found, width))


def _show_one(program: Program, json: bool) -> None:
    from slipstream.outputs.terminal.programs import program_json, render_program

    if json:
        return show_json(program_json(program))
    show(lambda width: render_program(program, width))


def find_program(profile: Profile, name: str) -> Program:
    """The program called `name`, with or without its id; of several, the one that ran."""
    if name in profile.programs:
        return profile.programs[name]
    matches = [known for known in profile.programs if known.partition("(")[0] == name]
    ran = {profile.events.texts[index] for index in profile.runs.program.tolist()}
    matches = [known for known in matches if known in ran] or matches
    # A program loaded several times has several ids but one content. Its fingerprint is taken
    # before scheduling, so programs with other schedules share it.
    distinct = {profile.programs[known].content_hash: known for known in reversed(matches)}
    if len(distinct) == 1:
        return profile.programs[matches[0]]
    if distinct:
        names = ", ".join(distinct.values())
        raise BadInput(f"{len(distinct)} programs are called {name}; choose one of: {names}")
    if not profile.programs:
        raise BadInput(
            "this profile contains no programs; record it with host tracing enabled, and compile "
            "or run the program while the profiler is on"
        )
    raise BadInput(no_such("program", name, list(profile.programs)))
