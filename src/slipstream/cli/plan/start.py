"""`slipstream plan TARGET`: make a plan."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Annotated

import typer

from slipstream.cli.common import JsonOption, TopOption
from slipstream.cli.plan.common import (
    DEFAULT_STUDY,
    FlagsOption,
    HtmlOption,
    LiveCandidates,
    check_recommended,
    percentage,
    prices,
    resumable,
    show_plan,
)
from slipstream.cli.study_place import named, working_folder
from slipstream.cli.tune.common import JobsOption, RayOption, StorageOption, TimeoutOption, seconds


def start(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE.py:FUNCTION | -- CMD...",
            help="Build function: its keyword parameters with Literal, enum, bool, "
            "slipstream.Range or slipstream.Divisor types are the choices. Or the command of a "
            "program, with {NAME} where a value of --vary belongs.",
        ),
    ],
    on: Annotated[
        str, typer.Option("--on", metavar="SPEC[,SPEC…]", help="Machines: 64xH100,2xv5e-256.")
    ] = "8xH200",
    vary: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE,…", help="Values of a choice; may be repeated."),
    ] = None,
    where: Annotated[
        str, typer.Option(metavar="CONDITION", help="Only combinations with: 'tensor <= 8'.")
    ] = "",
    objective: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="work/s, work/s/device, work/$, or time (of a --global-batch).",
        ),
    ] = "work/s",
    work: Annotated[
        str,
        typer.Option(
            metavar="EXPRESSION",
            help="Work of a step: 'batch * data * 8192'.  [default: as its arguments show]",
        ),
    ] = "",
    unit: Annotated[str, typer.Option(metavar="NAME", help="What --work counts: tokens.")] = "",
    global_batch: Annotated[
        float | None,
        typer.Option(
            "--global-batch", metavar="WORK", min=1, help="Work of a batch of several steps."
        ),
    ] = None,
    price: Annotated[
        str | None,
        typer.Option(metavar="[GPU=]DOLLARS,…", help="Price of a GPU-hour: 2.50, or H100=2.50."),
    ] = None,
    margin: Annotated[
        str, typer.Option(metavar="SHARE", help="Memory of each device that stays free.")
    ] = "8%",
    costs: Annotated[
        str | None, typer.Option(metavar="PATH", help="Measured costs, as for predict.")
    ] = None,
    trials: Annotated[
        int,
        typer.Option("--trials", metavar="N", min=1, help="Maximum number of combinations."),
    ] = 1000,
    budget: Annotated[str, typer.Option(metavar="TIME", help="Time for the search.")] = "15m",
    timeout: TimeoutOption = "5m",
    is_measured: Annotated[
        bool,
        typer.Option("--measure", help="Then time the best few on the GPUs that are here."),
    ] = False,
    study: Annotated[
        str, typer.Option(metavar="DIR", help="Folder or URL of the plan.")
    ] = DEFAULT_STUDY,
    storage: StorageOption = None,
    jobs: JobsOption = None,
    ray: RayOption = None,
    flags: FlagsOption = 0,
    html: HtmlOption = None,
    top: TopOption = None,
    json: JsonOption = False,
) -> None:
    """Choose layout, batch and remat for machines that need not be here.

    Every combination that can win is compiled by XLA's GPU compiler, with no GPU needed, and
    simulated. Continue an interrupted plan with: slipstream plan resume DIR
    """
    from slipstream.plan.measure.measure import check_measurable, measure
    from slipstream.plan.plans import PlanOptions, plan
    from slipstream.plan.search.objective import Objective

    # A command has places for its choices, so it has more than one word.
    command = tuple(words) if len(words) > 1 else ()
    target = shlex.join(words) if command else words[0]
    options = PlanOptions(
        on=tuple(dict.fromkeys(spec.strip() for spec in on.split(",") if spec.strip())),
        vary=tuple(vary or ()),
        where=where,
        objective=Objective(
            kind=objective,
            work=work,
            unit=unit,
            global_batch=global_batch,
            prices=prices(price),
            margin=percentage(margin),
        ),
        trials=trials,
        budget_s=seconds(budget),
        timeout_s=seconds(timeout),
        storage=storage,
        jobs=jobs,
        costs=costs,
        ray=ray,
        flags=flags,
        command=command,
    )
    with working_folder(study, DEFAULT_STUDY) as folder, resumable(folder, study):
        if is_measured:
            check_measurable(folder)
        with LiveCandidates() as live:
            options = replace(options, folder=folder)
            found = plan(target, options, on_result=live.add, progress=live.progress)
            if is_measured:
                found = measure(folder, progress=live.progress)
    show_plan(replace(found, folder=named(study)), top, html, json)
    check_recommended(found)
