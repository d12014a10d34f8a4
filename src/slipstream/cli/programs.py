"""`slipstream programs`: the programs of a profile, or one of them in detail."""

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
)
from slipstream.did_you_mean import no_such
from slipstream.errors import BadInput

if TYPE_CHECKING:
    from slipstream.profile.profile import Profile
    from slipstream.profile.program import Program


def programs(
    path: PathArgument,
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="The program to describe.", show_default=False),
    ] = None,
    run: RunOption = None,
    dumps: DumpsOption = None,
    json: JsonOption = False,
) -> None:
    """The programs that ran, most device time first; with NAME, one of them in detail.

    A name is enough where it is the only one; `name(id)` always is.
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
    """The program called `name`, with or without its id."""
    if name in profile.programs:
        return profile.programs[name]
    matches = [known for known in profile.programs if known.partition("(")[0] == name]
    # One program may have been loaded several times: ids differ, fingerprints don't.
    distinct = {profile.programs[known].fingerprint or known: known for known in reversed(matches)}
    if len(distinct) == 1:
        return profile.programs[matches[0]]
    if distinct:
        names = ", ".join(distinct.values())
        raise BadInput(f"{len(distinct)} programs are called {name}; name one of: {names}")
    if not profile.programs:
        raise BadInput(
            "this profile holds no programs; record it with host tracing on, "
            "and with the program compiled or run while the profiler is on"
        )
    raise BadInput(no_such("program", name, list(profile.programs)))
