"""Apply the fixes of findings to files."""

from __future__ import annotations

import os
from collections.abc import Iterable

from slipstream.flags.lint.findings import SEVERITIES, LintFinding
from slipstream.flags.settings import read_file
from slipstream.writing import atomic_write


def apply_fixes(text: str, findings: Iterable[LintFinding]) -> str:
    """`text` with all fixes applied; where fixes overlap, that of the worst finding."""
    chosen: dict[tuple[int, int], str] = {}
    for finding in sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)):
        if finding.fix is not None and finding.place.span is not None:
            chosen.setdefault(finding.place.span, finding.fix)
    for (start, end), replacement in sorted(chosen.items(), reverse=True):
        if replacement:
            text = text[:start] + replacement + text[end:]
        else:
            text = _without(text, start, end)
    return text


def _without(text: str, start: int, end: int) -> str:
    """The text without a span, and without its line if nothing else is on it.

        "--a=1 \\          "--a=1 \\
         --gone=2 \\   →    --b=3"
         --b=3"
    """
    line_start = text.rfind("\n", 0, start) + 1
    line_end = text.find("\n", end)
    before, after = text[line_start:start], text[end : line_end if line_end >= 0 else len(text)]
    if not before.strip() and after.strip() in ("", "\\") and line_start > 0 and line_end >= 0:
        return text[:line_start] + text[line_end + 1 :]
    if after.lstrip(" ").startswith(",") and text[start] in "\"'":  # a dict entry
        end += len(after) - len(after.lstrip(" ")) + 1
        return text[:start] + text[end:].lstrip(" ")
    if before.endswith((" ", "\t")) and before.strip():
        return text[: line_start + len(before.rstrip(" \t"))] + text[end:]
    return text[:start] + text[end + len(after) - len(after.lstrip(" \t")) :]


def fix_file(path: str | os.PathLike[str], findings: Iterable[LintFinding]) -> int:
    """Rewrite a file; returns the number of changes."""
    findings = list(findings)
    text = read_file(path)
    fixed = apply_fixes(text, findings)
    if fixed == text:
        return 0
    mode = os.stat(path).st_mode
    with atomic_write(path) as temporary:
        temporary.write_bytes(fixed.encode())
    os.chmod(path, mode)  # a script stays executable
    return len({finding.place.span for finding in findings if finding.fix is not None})
