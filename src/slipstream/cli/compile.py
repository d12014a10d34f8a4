"""`slipstream compile`: compile a program for any machine, without a GPU."""

from __future__ import annotations

from typing import Annotated

import typer

from slipstream.cli.common import JsonOption, show, show_json
from slipstream.cli.prediction import CompileProgress


def compile(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="Program to compile: FILE.py:FUNCTION, StableHLO (.mlir), or HLO before "
            "optimisation (.hlo.pb, .txt).",
        ),
    ],
    on: Annotated[
        str,
        typer.Option("--on", metavar="SPEC", help="Machine: 8xH200, v5p-128, FILE.toml."),
    ] = "8xH200",
    flags: Annotated[
        str | None,
        typer.Option("--flags", metavar="FLAGS", help="XLA flags: '--xla_…=… --xla_…=…'."),
    ] = None,
    costs: Annotated[
        str | None,
        typer.Option("--costs", metavar="FILE", help="Costs for XLA's scheduler (.pb, .pbtxt)."),
    ] = None,
    order: Annotated[
        str | None,
        typer.Option("--order", metavar="FILE", help="Order of the instructions (see schedule)."),
    ] = None,
    autotuning: Annotated[
        str | None,
        typer.Option("--autotuning", metavar="FILE", help="Autotuning results for XLA to use."),
    ] = None,
    use_gpu: Annotated[
        bool,
        typer.Option(
            "--use-gpu", help="Compile with the configuration and autotuning of the local GPU."
        ),
    ] = False,
    output: Annotated[
        str | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="File for the compiled program: .hlo.pb or .hlo."
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Compile a program for any machine with XLA's GPU compiler.

    No GPU is needed. Prints the program's collectives, its memory, and XLA's messages. FUNCTION
    takes `devices` (a list) or `mesh`, and returns a jitted function and its abstract arguments.
    Results are cached.
    """
    from slipstream.compiler.compile import compilation, machine_of
    from slipstream.compiler.export import write_program
    from slipstream.outputs.terminal.compiled.compile import compile_json, render_compile

    machine = machine_of(on)
    with CompileProgress(machine) as progress:
        found = compilation(
            target,
            on=machine,
            flags=flags,
            costs=costs,
            order=order,
            autotuning=autotuning,
            use_gpu=use_gpu,
            progress=progress.update,
        )
    written = str(write_program(found, output)) if output else None
    if json:
        return show_json(compile_json(found, written), output)
    show(lambda width: render_compile(found, width, written), output)
