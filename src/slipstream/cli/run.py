"""`slipstream run -- CMD`: profile a job, recompile its step with the costs, prove the gain."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from slipstream.cli.common import JsonOption, show_json
from slipstream.remote.paths import RemotePath, any_path, is_remote

LAYOUT_ROUNDS = 8
"""rounds of --compare-layouts, each of which runs the job twice"""


def run(
    command: Annotated[
        list[str], typer.Argument(metavar="-- CMD...", help="The job, as you would type it.")
    ],
    preset: Annotated[
        list[str] | None,
        typer.Option("--preset", metavar="NAME", help="Run the job with a preset's settings."),
    ] = None,
    flags: Annotated[
        list[str] | None,
        typer.Option("--flags", metavar="FLAGS", help="Also try flags: '--xla_…=… --xla_…=…'."),
    ] = None,
    function: Annotated[
        list[str] | None,
        typer.Option(
            "--function", metavar="NAME", help="Optimise this function.  [default: the slowest]"
        ),
    ] = None,
    capture: Annotated[
        str, typer.Option(metavar="START:COUNT", help="Steps before the profile and in it.")
    ] = "5:3",
    out: Annotated[
        str, typer.Option(metavar="DIR", help="Folder or URL for everything the run writes.")
    ] = "slipstream-run",
    profile_first: Annotated[
        bool,
        typer.Option(
            "--profile-first",
            help="Start the job twice: for a few steps to profile it, then for real. The job sees "
            "the checkpoints and folders that its first start made.",
        ),
    ] = False,
    in_place: Annotated[
        bool, typer.Option("--in-place", hidden=True, help="The default: start the job once.")
    ] = False,
    auto: Annotated[
        bool, typer.Option("--auto", help="Use JAX's AutoPGLE, and prove what it gains.")
    ] = False,
    schedule: Annotated[
        bool,
        typer.Option("--schedule", help="Compare an order of our own, too (JAX 0.11, GPUs)."),
    ] = False,
    compare_layouts: Annotated[
        bool,
        typer.Option("--compare-layouts", help="Compare one process per GPU with one for all."),
    ] = False,
    nsys: Annotated[
        bool,
        typer.Option("--nsys", help="Profile with Nsight Systems; implies --profile-first."),
    ] = False,
    rounds: Annotated[
        int | None,
        typer.Option(min=8, metavar="N", help="Maximum number of rounds.  [default: 30]"),
    ] = None,
    simulate: Annotated[
        str | None,
        typer.Option(metavar="SPEC", help="Predict for a machine such as 8xH200; needs no GPU."),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Repeat every phase; reuse nothing in the folder.")
    ] = False,
    track: Annotated[
        list[str] | None,
        typer.Option(
            "--track",
            metavar="NAME",
            help="Log the receipt to tensorboard[=LOGDIR], wandb or mlflow, or none.  [default: "
            "what the job uses]",
        ),
    ] = None,
    rank: Annotated[
        str | None,
        typer.Option(metavar="N/COUNT", help="This process.  [default: from the launcher]"),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Profile a job, recompile its step, and keep what is faster.

    The job is any command that runs JAX. It is not modified, runs once, and its exit code is passed
    on.
    """
    from slipstream.outputs.terminal.run import PhaseReporter
    from slipstream.run.run import run as run_job
    from slipstream.run.settings import Settings, parse_capture, parse_rank, profiler_attributes
    from slipstream.run.trackers.tracking import parse_track

    start, steps = parse_capture(capture)
    settings = Settings(
        tuple(command),
        out=RemotePath(out) if is_remote(out) else any_path(out),
        presets=tuple(preset or ()),
        flags=tuple(flags or ()),
        functions=tuple(function or ()),
        start=start,
        steps=steps,
        rounds=rounds or (LAYOUT_ROUNDS if compare_layouts else 30),
        profile_first=profile_first,
        in_place=in_place,
        auto=auto,
        schedule=schedule,
        nsys=nsys,
        layouts=compare_layouts,
        simulate=simulate,
        again=again,
        rank=parse_rank(rank),
        track=parse_track(track or ()),
        is_json=json,
        profiler=profiler_attributes(os.environ),
    )
    with PhaseReporter() as reporter:
        try:
            result = run_job(settings, reporter.say)
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
    if json and result.receipt is not None:
        show_json(result.receipt.to_json())
    raise typer.Exit(result.code)
