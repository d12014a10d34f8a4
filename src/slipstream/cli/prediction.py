"""What `compile`, `predict` and `simulate` share: options, progress, and files written."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slipstream.cli.common import note, open_profile
from slipstream.outputs.formatting import printable

if TYPE_CHECKING:
    from slipstream.machines.machine import Machine
    from slipstream.results.prediction import Prediction
    from slipstream.simulate.recorded import RecordedCosts

DEFAULT_MACHINE = "8xH200"

MachinesOption = Annotated[
    str,
    typer.Option("--on", metavar="SPEC[,SPEC…]", help="Machines: 8xH200, 2xv5e-256, FILE.toml."),
]
CostsOption = Annotated[
    str | None,
    typer.Option(
        "--costs",
        metavar="PATH",
        help="Measured costs: a .pb or .pbtxt, a folder of them, or a recording.",
    ),
]
CommandBuffersOption = Annotated[
    bool | None,
    typer.Option(
        "--command-buffers/--no-command-buffers",
        help="Simulate with or without CUDA graphs.  [default: as the flags say]",
        show_default=False,
    ),
]
TimelineOption = Annotated[
    str | None,
    typer.Option(
        "--timeline",
        metavar="FILE",
        help="Write the simulated step as .xplane.pb, which every other command reads.",
    ),
]
HtmlOption = Annotated[
    str | None,
    typer.Option(
        "--html",
        metavar="FILE",
        help="Write an HTML page: all machines side by side, and the step on the first.",
    ),
]
WaitsOption = Annotated[
    bool, typer.Option("--waits", help="List all waits, with their source lines.")
]


def parse_machines(on: str) -> list[Machine]:
    """The machines of a comma-separated list of specifications."""
    from slipstream.machines.topology import machine

    return [machine(spec.strip()) for spec in on.split(",") if spec.strip()]


def measured_costs(path: str | None) -> RecordedCosts | None:
    """Measured costs, with the program they were measured on if they come from a recording."""
    if path is None:
        return None
    from slipstream.simulate.recorded import recorded_costs

    return recorded_costs(path, open_profile)


def save_timeline(path: str | None, prediction: Prediction, program: Path, several: bool) -> None:
    """Write a prediction's timeline; with several machines, one file each."""
    if path is None or prediction.timeline is None:
        return
    from slipstream.outputs.xplane_writer import write_timeline
    from slipstream.sources.files import open_bytes
    from slipstream.writing import file_name

    target = Path(path)
    if several:
        name = target.name.removesuffix(".xplane.pb").removesuffix(".pb")
        target = target.with_name(f"{name}.{file_name(prediction.machine)}.xplane.pb")
    written = write_timeline(prediction.timeline, target, open_bytes(program).tobytes())
    note(f"timeline: {written}; read it with: slipstream summary {written}")


def save_page(path: str | None, predictions: Sequence[Prediction]) -> None:
    """Write predictions as a page: all machines, and every analysis of the step on the first."""
    if path is None or not predictions or predictions[0].timeline is None:
        return
    from slipstream.outputs.html.report import write_report
    from slipstream.outputs.html.report_data import results

    timeline, machine = predictions[0].timeline, predictions[0].machine
    write_report(results(timeline, machine, predictions=tuple(predictions)), path)
    note(f"page: {path}")


class CompileProgress:
    """Shows on a terminal what the compiler is doing; silent elsewhere."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._began = time.monotonic()
        self._status: Any = None

    def update(self, text: str) -> None:
        if not sys.stderr.isatty():
            return
        from rich.text import Text

        if self._status is None:
            from rich.console import Console

            self._status = Console(stderr=True).status("")
            self._status.start()
        self._status.update(Text(printable(f"{self._machine.spec}: {text}")))

    def __enter__(self) -> CompileProgress:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self._status is not None:
            self._status.stop()
            if kind is None:
                seconds = time.monotonic() - self._began
                note(f"compiled for {self._machine.spec} in {seconds:.1f} s")
