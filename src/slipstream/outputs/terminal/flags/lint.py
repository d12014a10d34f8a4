"""`slipstream flags lint` as text and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.text import Text

from slipstream.flags.lint.findings import SEVERITIES, LintFinding
from slipstream.outputs.formatting import printable
from slipstream.outputs.terminal.layout import paragraph

_STYLES = {"abort": "bold red", "error": "red", "warning": "yellow", "note": "dim"}
_INDENT = "  "


def render_findings(
    findings: Sequence[LintFinding], jaxlib_version: str, gpu: str | None, width: int = 80
) -> Text:
    """Every finding with its place, then a count by severity."""
    text = Text()
    for finding in findings:
        text.append(f"{printable(str(finding.place))}: ")
        text.append(finding.severity, style=_STYLES[finding.severity])
        text.append(f" {finding.code}\n")
        lines = paragraph(printable(finding.message), width, _INDENT, _INDENT)
        text.append("\n".join(lines) + "\n")
    text.append(summary_line(findings, jaxlib_version, gpu))
    return text


def summary_line(findings: Sequence[LintFinding], jaxlib_version: str, gpu: str | None) -> str:
    """`jaxlib 0.10.2: 3 aborts · 1 warning`."""
    counts = [
        f"{count} {severity}{'' if count == 1 else 's'}"
        for severity in SEVERITIES
        if (count := sum(finding.severity == severity for finding in findings))
    ]
    on = f" on {gpu}" if gpu else ""
    return f"jaxlib {jaxlib_version}{on}: {' · '.join(counts) or 'no problems found'}"


def findings_json(
    findings: Sequence[LintFinding], jaxlib_version: str, gpu: str | None
) -> dict[str, Any]:
    """What `flags lint --json` prints."""
    return {
        "jaxlib": jaxlib_version,
        "gpu": gpu,
        "findings": [_finding_json(finding) for finding in findings],
    }


def _finding_json(finding: LintFinding) -> dict[str, Any]:
    data = asdict(finding)
    for only_for_rewriting in ("within", "is_one_piece"):
        del data["place"][only_for_rewriting]
    return data
