"""What `compile`, `predict` and `simulate` share: options, progress, and files written."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slipstream.cli.common import note, open_profile, save_comment
from slipstream.errors import BadInput, CheckFailed
from slipstream.outputs.formatting import printable
from slipstream.remote.paths import any_path
from slipstream.writing import atomic_write

if TYPE_CHECKING:
    from slipstream.compiler.compilation import Compilation
    from slipstream.machines.machine import Machine
    from slipstream.profile.program import Program
    from slipstream.results.prediction import Prediction
    from slipstream.results.regression import Baseline, Regression
    from slipstream.simulate.recorded import RecordedCosts
    from slipstream.simulate.what_if import Asked

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

WhatIfOption = Annotated[
    str | None,
    typer.Option(
        "--what-if",
        metavar="network[=…]",
        help="Also simulate the step with other networks between slices or hosts: network=50Gb/s "
        "(per host), network=50Gb/s@2ms (and latency), several with commas, or just network.",
    ),
]

BaselineOption = Annotated[
    str | None,
    typer.Option(
        "--baseline",
        metavar="FILE|TARGET",
        help="Compare with an earlier prediction: the .json that -o wrote, or the program in "
        "another checkout.",
    ),
]
GateOption = Annotated[
    str | None,
    typer.Option(
        "--gate",
        metavar="PERCENT",
        help="Exit with 1 if the step or the memory grew by more than this: 2 or 2%.",
    ),
]
MemoryGateOption = Annotated[
    str | None,
    typer.Option(
        "--gate-memory", metavar="PERCENT", help="Another limit for the memory.  [default: --gate]"
    ),
]
MarkdownOption = Annotated[
    str | None,
    typer.Option(
        "--markdown",
        metavar="FILE",
        help="Write the comparison with the baseline as Markdown, for a pull request.",
    ),
]
PredictionOutputOption = Annotated[
    str | None,
    typer.Option(
        "--output", "-o", metavar="FILE", help="Write the JSON (.json), as a later baseline."
    ),
]


def asked_what_if(what_if: str | None, machines: Sequence[Machine]) -> Sequence[Asked] | None:
    """The networks to simulate; None if that is not asked for."""
    if what_if is None:
        return None
    from slipstream.simulate.what_if import asked_networks, check_network

    asked = asked_networks(what_if)
    check_network(machines)
    return asked


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

    target = any_path(path)
    if several:
        name = target.name.removesuffix(".xplane.pb").removesuffix(".pb")
        target = target.with_name(f"{name}.{file_name(prediction.machine)}.xplane.pb")
    written = write_timeline(prediction.timeline, target, open_bytes(program).tobytes())
    note(f"timeline: {written}; read it with: slipstream summary {written}")


def check_json_name(path: str | None) -> None:
    """BadInput for a name that `--baseline` would take for a program."""
    if path is not None and Path(path).suffix not in ("", ".json"):
        raise BadInput(f"{path} is no name for JSON; expected: -o base.json")


def save_json(path: str | None, data: Any) -> None:
    """Write what --json prints, as a baseline for later."""
    if path is None:
        return
    from slipstream.outputs.json import dumps

    with atomic_write(path) as file:
        file.write_text(dumps(data) + "\n", encoding="utf-8")
    note(f"prediction: {path}")


def save_page(path: str | None, predictions: Sequence[Prediction]) -> None:
    """Write predictions as a page: all machines, and every analysis of the step on the first."""
    if path is None or not predictions or predictions[0].timeline is None:
        return
    from slipstream.outputs.html.report import write_report
    from slipstream.outputs.html.report_data import results

    timeline, machine = predictions[0].timeline, predictions[0].machine
    write_report(results(timeline, machine, predictions=tuple(predictions)), path)
    note(f"page: {path}")


def identified(
    prediction: Prediction, program: Program, compiled: Compilation | None = None
) -> Prediction:
    """A prediction that can be a baseline: it says of which program, and made with what."""
    from slipstream import __version__
    from slipstream.tune.search.fingerprint import fingerprint_of

    versions = compiled.versions if compiled is not None else {}
    return replace(
        prediction,
        fingerprint=fingerprint_of(program).schedule,
        versions={"slipstream": __version__, **versions},
    )


@dataclass(frozen=True)
class Gate:
    """What `predict` is asked to compare with, and how much worse it may be."""

    baseline: str | None
    limit: float | None
    memory_limit: float | None
    markdown: str | None

    @property
    def target(self) -> str | None:
        """The program of another checkout, which is yet to be predicted."""
        is_file = self.baseline is None or self.baseline.endswith(".json")
        return None if is_file else self.baseline

    def judge(
        self, found: Sequence[Prediction], before: Sequence[Baseline], target: str
    ) -> tuple[Regression, ...]:
        """Each prediction next to its baseline, also written as Markdown if asked for."""
        from slipstream.outputs.regression import markdown
        from slipstream.simulate.regression import read_baselines, regressions

        if self.baseline is None:
            return ()
        known = before or read_baselines(self.baseline)
        compared = regressions(known, found, self.limit, self.memory_limit)
        if self.markdown is not None:
            save_comment(self.markdown, markdown(compared, target))
        return compared


def asked_gate(
    baseline: str | None, gate: str | None, memory: str | None, markdown: str | None
) -> Gate:
    """The options of a comparison; BadInput if they don't go together."""
    from slipstream.cli.profiles.diff import parse_gate

    asked = {"--gate": gate, "--gate-memory": memory, "--markdown": markdown}
    given = [name for name, value in asked.items() if value is not None]
    if baseline is None and given:
        raise BadInput(
            f"{given[0]} compares with an earlier prediction; add: --baseline base.json (written "
            "by: slipstream predict TARGET -o base.json)"
        )
    limit = parse_gate(gate) if gate is not None else None
    memory_limit = parse_gate(memory, "--gate-memory") if memory is not None else limit
    return Gate(baseline, limit, memory_limit, markdown)


def fail_if_worse(compared: Sequence[Regression]) -> None:
    """CheckFailed if a gate did not pass."""
    from slipstream.outputs.regression import verdict_text

    failed = [one for one in compared if one.passed is False]
    if failed:
        raise CheckFailed("; ".join(f"{one.after.machine}: {verdict_text(one)}" for one in failed))


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
