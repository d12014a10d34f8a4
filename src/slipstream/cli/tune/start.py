"""`slipstream tune TARGET`: search, from nothing."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from slipstream.cli.common import JsonOption, TopOption, show, show_json
from slipstream.cli.tune.common import (
    DEFAULT_STUDY,
    JobsOption,
    LiveTable,
    OnlyOption,
    TimeoutOption,
    TrialsOption,
    knob,
    seconds,
    size,
)


def start(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET|RUN-FOLDER",
            help="What to compile (FILE.py:FUNCTION, .mlir, .hlo.pb), or a folder of slipstream "
            "run.",
        ),
    ],
    on: Annotated[
        str, typer.Option("--on", metavar="SPEC", help="Machine: 8xH200, FILE.toml.")
    ] = "8xH200",
    objective: Annotated[
        str, typer.Option(metavar="NAME", help="What is to be small: step, memory or compile.")
    ] = "step",
    budget: Annotated[
        str, typer.Option(metavar="TIME", help="Time for the search: 90s, 10m, 2h.")
    ] = "10m",
    trials: TrialsOption = 60,
    study: Annotated[
        str, typer.Option(metavar="DIR", help="Folder for the study.")
    ] = DEFAULT_STUDY,
    storage: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Keep trials here: postgresql://USER@HOST/NAME.  [default: SQLite in DIR]",
        ),
    ] = None,
    jobs: JobsOption = None,
    costs: Annotated[
        str | None, typer.Option(metavar="PATH", help="Measured costs, as predict takes them.")
    ] = None,
    add: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE,…", help="A knob more; `;` where values hold commas."),
    ] = None,
    forbid: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A knob that stays as it is.")
    ] = None,
    only: OnlyOption = None,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Most that a device may need: 120GB.")
    ] = None,
    timeout: TimeoutOption = "10m",
    measure: Annotated[
        bool, typer.Option("--measure", help="Then run the best on this machine's devices.")
    ] = False,
    tolerance: Annotated[
        float, typer.Option(metavar="X", help="How far results may be off, of the largest value.")
    ] = 0.01,
    top: TopOption = None,
    json: JsonOption = False,
) -> None:
    """Find the settings that pay: compile candidates for a machine, simulate, rank.

    A search that was ended goes on with: slipstream tune resume DIR.
    """
    from slipstream.outputs.tuning import render_tuning, tuning_json
    from slipstream.tune.begin import Order, tune
    from slipstream.tune.begin import measure as run_best
    from slipstream.tune.space import Asked

    asked = Asked(tuple(forbid or ()), dict(map(knob, add or ())), tuple(only or ()))
    order = Order(
        on, objective, trials, seconds(budget), Path(study), storage, jobs, costs, asked,
        size(memory), tolerance, seconds(timeout),
    )  # fmt: skip
    with LiveTable() as table:
        found = tune(target, order, on_told=table.told, progress=table.progress)
        if measure:
            use_gpu = shutil.which("nvidia-smi") is not None
            found = run_best(order.folder, use_gpu=use_gpu, on_told=table.told)
    if json:
        return show_json(tuning_json(found))
    show(lambda width: render_tuning(found, width, top))
