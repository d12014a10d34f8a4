"""`slipstream diff`: what changed between two profiles, and whether it exceeds noise."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slipstream.cli.common import (
    FlatOption,
    JsonOption,
    echo,
    note,
    open_profile,
    save_comment,
    show,
    show_json,
    with_tables,
)
from slipstream.errors import BadInput, CheckFailed

PROFILE = "Profile, or a timeline written by `predict --timeline`."


@with_tables
def diff(
    before: Annotated[str, typer.Argument(metavar="BEFORE", help=PROFILE)],
    after: Annotated[str, typer.Argument(metavar="AFTER", help="The same for the changed run.")],
    gate: Annotated[
        str | None,
        typer.Option(
            metavar="PERCENT",
            help="Exit with 1 if the step got slower by more than this, beyond noise: 2 or 2%.",
        ),
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Number of ops to print.  [default: 10; all with --json]"
        ),
    ] = None,
    flat: FlatOption = False,
    html: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Also write a page: changes, flags, both timelines."),
    ] = None,
    markdown: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Also write Markdown, for a pull request."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Compare two profiles op by op; --gate fails on a slower step.

    Ops are matched by what they compute, because their names change with every compilation. With
    --gate the exit code is 1 if the step is slower than the limit beyond noise, and 2 if that can't
    be told: too few steps, or different programs.
    """
    limit = parse_gate(gate) if gate is not None else None
    from slipstream.analyses.diff.diff import DIFFERENT_PROGRAMS, is_slower_than
    from slipstream.analyses.diff.diff import diff as analyse
    from slipstream.outputs.terminal.diff import TOP, diff_json, gate_line, render_diff

    sides = open_profile(before), open_profile(after)
    found = analyse(*sides)
    names = distinct_names(before, after)
    if html is not None:
        from slipstream.outputs.html.diff import write_diff

        write_diff(found, sides, names, html)
        note(f"page: {html}")
    if markdown is not None:
        from slipstream.outputs.markdown.diff import diff_markdown

        save_comment(markdown, diff_markdown(found, names, limit, top or TOP, flat))
    if json:
        show_json(diff_json(found, top, limit), html, markdown)
    else:
        show(lambda width: render_diff(found, width, top or TOP, flat), html, markdown)
    if limit is None:
        return
    slower = is_slower_than(found.verdict, limit)
    said = gate_line(None if slower is None else not slower, limit, found.verdict)
    if slower is None:
        is_other = found.verdict.verdict == DIFFERENT_PROGRAMS
        todo = "compare two profiles of one model" if is_other else "record at least three steps"
        raise BadInput(f"{said}; {todo}")
    if slower:
        raise CheckFailed(said)
    if not json:
        echo(said, html, markdown)


def distinct_names(before: str, after: str) -> tuple[str, str]:
    """The shortest ends of two paths that differ; their names, if the paths are the same."""
    parts = Path(before).parts, Path(after).parts
    for count in range(1, max(map(len, parts)) + 1):
        ends = "/".join(parts[0][-count:]), "/".join(parts[1][-count:])
        if ends[0] != ends[1]:
            return ends
    return Path(before).name, Path(after).name


def parse_gate(text: str, option: str = "--gate") -> float:
    """`2%` or `2` as a share; BadInput for anything else."""
    shown = text.strip()
    try:
        number = float(shown.removesuffix("%"))
    except ValueError:
        raise BadInput(f"{text!r} is not a limit; expected a percentage: {option} 2%") from None
    if not 0 <= number < 1000:
        raise BadInput(f"{text!r} is not a limit; expected a percentage: {option} 2%")
    if 0 < number < 1 and not shown.endswith("%"):
        # Some tools take 0.02 for 2%, others for 0.02%: a gate must not guess.
        raise BadInput(
            f"{text!r} may be {number:.2%} or {number / 100:.2%}; write the sign: "
            f"{option} {number * 100:g}%"
        )
    return number / 100
