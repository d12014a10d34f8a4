"""What the commands of `tune` share: options, parsing, and the live table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from slipstream.cli.live_lines import LiveLines
from slipstream.errors import BadInput

if TYPE_CHECKING:
    from slipstream.tune.outcome import Outcome
    from slipstream.tune.search.study import Candidate
    from slipstream.tune.study_folder import JobSpec

DEFAULT_STUDY = "slipstream-tune"
StudyArgument = Annotated[
    str, typer.Argument(metavar="DIR", help="Folder of the study.")
]  # fmt: skip
JobsOption = Annotated[
    int | None,
    typer.Option(
        "--jobs", metavar="N", min=1, help="Parallel compiles.  [default: cores, at most 4]"
    ),
]
RayOption = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="Compile candidates on a Ray cluster: auto, HOST:PORT, ray://HOST:PORT. --jobs then "
        "defaults to all of its CPUs.",
    ),
]
StorageOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Database for trials: postgresql://USER@HOST/NAME.  [default: SQLite in DIR]",
    ),
]
AddOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE,…", help="Add a knob; separate values by `;` if they contain commas."
    ),
]
CommandArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[-- CMD...]", help="Job to measure, as you would type it."),
]
MeasureOption = Annotated[
    bool,
    typer.Option(
        "--measure", help="Also run the best candidates: on this machine's devices, or as CMD."
    ),
]
CaptureOption = Annotated[
    str, typer.Option(metavar="START:COUNT", help="Steps of CMD to skip, and steps to time.")
]
OnlyOption = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="NAME", help="Tune only this knob; may be repeated."),
]
TimeoutOption = Annotated[
    str,
    typer.Option(
        "--timeout", metavar="TIME", help="Time after which a compile or run counts as hung."
    ),
]
MoreTimeOption = Annotated[
    str | None,
    typer.Option(
        "--budget", metavar="TIME", help="Time for the search.  [default: as at the start]"
    ),
]
TrialsOption = Annotated[
    int, typer.Option("--trials", metavar="N", min=1, help="Maximum number of candidates.")
]
_SECONDS = {"s": 1, "m": 60, "h": 3600, "": 1}
_BYTES = {"kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "B": 1, "": 1}


def seconds(text: str) -> float:
    """Parse `90s`, `10m` or `2h`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    if match is None:
        raise BadInput(f"{text!r} is not a duration; write 90s, 10m or 2h")
    return float(match[1]) * _SECONDS[match[2]]


def size(text: str | None) -> int | None:
    """Parse `120GB`."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(kB|MB|GB|TB|B|)", text.strip())
    if match is None:
        raise BadInput(f"{text!r} is not a size; write 120GB")
    return int(float(match[1]) * _BYTES[match[2]])


def knob(text: str) -> tuple[str, tuple[str, ...]]:
    """Parse `NAME=VALUE,VALUE`, or `NAME=VALUE;VALUE` if values contain commas."""
    name, equals, values = text.removeprefix("--").partition("=")
    if not equals:
        raise BadInput(f"--add {text} has no values; write --add NAME=VALUE,VALUE")
    return name, tuple(values.split(";" if ";" in values else ","))


def job_to_measure(
    target: str, command: Sequence[str], is_measured: bool, capture: str
) -> JobSpec | None:
    """The job that runs candidates; None if they are only simulated."""
    from slipstream.run.settings import parse_capture
    from slipstream.tune.run_folder import job_spec

    if command and not is_measured:
        raise BadInput(
            f"{' '.join(command)!r} is a job, and jobs need --measure: slipstream tune "
            f"{target} --measure -- {' '.join(command)}"
        )
    return job_spec(target, command, *parse_capture(capture)) if is_measured else None


class LiveTable(LiveLines):
    """A row for each candidate, with its change from the default."""

    def __init__(self, baseline_us: float | None = None) -> None:
        super().__init__()
        self._first = baseline_us

    def add(self, candidate: Candidate, outcome: Outcome) -> None:
        from slipstream.outputs.terminal.compiled.tune import row_line
        from slipstream.results.tuning import TrialResult

        if not candidate.settings:
            self._first = outcome.step_us
        change = None
        if outcome.step_us is not None and self._first:
            change = outcome.step_us / self._first - 1
        tried = TrialResult(
            candidate.number, candidate.settings, outcome.status, candidate.origin,
            outcome.step_us, change=outcome.change if outcome.change is not None else change,
        )  # fmt: skip
        self.show(row_line(tried))
