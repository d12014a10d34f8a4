"""`slipstream tune apply DIR`: print the best settings."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from slipstream.cli.common import JsonOption, echo, note, show_json
from slipstream.cli.study_place import readable_folder
from slipstream.cli.tune.common import StudyArgument


def apply(
    study: StudyArgument,
    form: Annotated[
        str,
        typer.Option(
            "--for", metavar="FORM", help="Output: sh, dotenv, json, python, slurm or k8s."
        ),
    ] = "sh",
    json: JsonOption = False,
) -> None:
    """Print the best settings for a shell, Slurm, Python or Kubernetes."""
    from slipstream.outputs.preset_files import preset_json, render
    from slipstream.tune.apply import winning_settings
    from slipstream.tune.measure.backends import winning_command
    from slipstream.tune.studies import show
    from slipstream.tune.study_folder import read_study

    folder = readable_folder(study)
    found = show(folder)
    command, placeholders = winning_command(read_study(folder), found)
    composed = winning_settings(found, placeholders=placeholders)
    if json:
        return show_json(
            {**preset_json(composed), **({"command": command} if placeholders else {})}
        )
    echo(render(composed, form).rstrip("\n"))
    if placeholders:
        # On stderr, because the settings may go into a file without comments.
        note(f"and in the command: {shlex.join(command)}")
