"""`slipstream costs` as text and JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.text import Text

from slipstream.costs.coverage import Coverage
from slipstream.costs.diff import CostDiff
from slipstream.costs.table import CostTable
from slipstream.outputs.formatting import number_text, plural, share_text
from slipstream.outputs.terminal.layout import TextColumn, paragraph, table, table_lines, wrap

MAX_PROGRAMS = 3
"""programs shown of a table"""
MAX_MISSING = 10
"""missing instructions that a check lists"""


def extracted_lines(costs: CostTable, coverage: Coverage | None, files: list[str]) -> list[str]:
    """What was written, and how much of the program it covers."""
    lines = []
    for program in costs.programs[:MAX_PROGRAMS]:
        mark = f" {program.fingerprint[:8]}" if program.fingerprint else ""
        count = plural(len(program.costs), "instruction")
        lines.append(f"{program.program}{mark} · {count} · policy {costs.policy}")
    lines += _more_programs(costs)
    if coverage is not None:
        lines.append(_covered(coverage))
        lines += [f"! stale: {reason}" for reason in coverage.stale]
    return lines + [f"wrote {file}" for file in files]


def _covered(coverage: Coverage) -> str:
    verb = "have" if coverage.basis.endswith("s") else "has"
    return f"{share_text(coverage.share)} of the {coverage.basis} {verb} a cost"


def table_json(costs: CostTable, coverage: Coverage | None) -> dict[str, Any]:
    """What `costs --json` and `costs show --json` print."""
    programs = [
        {
            "program": program.program,
            "fingerprint": program.fingerprint,
            "costs": [asdict(cost) for cost in program.costs.values()],
        }
        for program in costs.programs
    ]
    found = coverage_json(coverage) if coverage is not None else None
    return {"policy": costs.policy, "facts": costs.facts, "programs": programs, "coverage": found}


def coverage_json(coverage: Coverage) -> dict[str, Any]:
    """What `costs check --json` prints."""
    return asdict(coverage)


def diff_json(found: CostDiff) -> dict[str, Any]:
    """What `costs diff --json` prints."""
    changes = [{**asdict(change), "change_us": change.change_us} for change in found.changes]
    return {"same": found.same, "changes": changes}


def render_table(costs: CostTable, width: int = 80, top: int = 20) -> Text:
    """A cost file: programs, facts, and the highest costs."""
    lines: list[str] = []
    for program in costs.programs[:MAX_PROGRAMS]:
        count = plural(len(program.costs), "instruction")
        mark = f" · {program.fingerprint}" if program.fingerprint else " · any fingerprint"
        lines += [f"{program.program}{mark} · {count}", ""]
        highest = sorted(program.costs.values(), key=lambda cost: -cost.us)
        rows = [
            [
                cost.name,
                number_text(cost.us, 1),
                "" if cost.executions is None else str(cost.executions),
                "communication" if cost.is_communication else "",
            ]
            for cost in highest
        ]
        columns = (
            TextColumn("instruction", min_width=20),
            TextColumn("µs", right=True),
            TextColumn("executions", right=True),
            TextColumn("", min_width=0, key="kind"),
        )
        lines += [line for line, _ in table_lines(columns, rows, width, top)]
        lines.append("")
    lines += _more_programs(costs)
    return Text("\n".join([*lines, *_facts(costs, width)]).rstrip())


def _more_programs(costs: CostTable) -> list[str]:
    rest = costs.programs[MAX_PROGRAMS:]
    if not rest:
        return []
    total = sum(len(program.costs) for program in rest)
    return [f"… and {plural(len(rest), 'program')} more with {plural(total, 'instruction')}"]


def _facts(costs: CostTable, width: int) -> list[str]:
    if not costs.facts:
        return ["no manifest beside the file: its origin is unknown"]
    shown = ("device", "jaxlib_version", "steps", "date")
    stated = [
        f"{key.removesuffix('_version')} {costs.facts[key]}"
        for key in shown
        if costs.facts.get(key)
    ]
    return wrap([f"policy {costs.policy}", *stated], width)


def render_coverage(coverage: Coverage, width: int = 80) -> Text:
    """How much of a program has a cost, and what is missing."""
    lines = [
        f"{coverage.program}: {_covered(coverage)} "
        f"({coverage.found} found, {len(coverage.missing)} missing)"
    ]
    for reason in coverage.stale:
        lines += paragraph(f"stale: {reason}", width, "! ", "  ")
    if coverage.missing:
        lines += ["", *_missing_lines(coverage, width)]
        lines += paragraph(f"for these the scheduler assumes {coverage.fallback}", width)
    if coverage.unused:
        names = ", ".join(coverage.unused[:4]) + (" …" if len(coverage.unused) > 4 else "")
        count = plural(len(coverage.unused), "name")
        lines += paragraph(
            f"{count} in the file that the scheduler does not look up: {names}", width
        )
    return Text("\n".join(lines))


def _missing_lines(coverage: Coverage, width: int) -> list[str]:
    rows = [
        [
            missing.name,
            "" if missing.us is None else number_text(missing.us, 1),
            ", ".join(missing.closest),
        ]
        for missing in coverage.missing[:MAX_MISSING]
    ]
    columns = (
        TextColumn("missing", min_width=20),
        TextColumn("µs per step", right=True),
        TextColumn("closest in the file", min_width=12),
    )
    lines = table(columns, rows, width)
    rest = len(coverage.missing) - MAX_MISSING
    return lines + ([f"… and {rest} more"] if rest > 0 else [])


def render_diff(found: CostDiff, width: int = 80, top: int = 20) -> Text:
    """Two cost files side by side, the largest change first."""
    rows = [
        [
            change.name,
            "–" if change.before_us is None else number_text(change.before_us, 1),
            "–" if change.after_us is None else number_text(change.after_us, 1),
            f"{change.change_us:+.1f}",
        ]
        for change in found.changes
    ]
    columns = (
        TextColumn("instruction", min_width=20),
        TextColumn("before, µs", right=True),
        TextColumn("after, µs", right=True),
        TextColumn("change", right=True),
    )
    lines = [line for line, _ in table_lines(columns, rows, width, top)] if rows else []
    return Text("\n".join([*lines, f"{plural(found.same, 'instruction')} unchanged"]))
