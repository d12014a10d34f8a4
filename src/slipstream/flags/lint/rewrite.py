"""Apply the fixes of findings to files, where nothing else changes with them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from slipstream.flags.lint.findings import SEVERITIES, LintFinding
from slipstream.flags.lint.proof import Edit, is_proved
from slipstream.flags.settings import FileFormat, file_format, read_file
from slipstream.writing import atomic_write

_BLANKS = " \t"


@dataclass(frozen=True)
class Fixed:
    """A text with fixes, and how many were made and left out."""

    text: str
    made: int
    left: int
    """fixes that would have changed more than the setting"""


def fix_text(text: str, findings: Iterable[LintFinding], form: FileFormat) -> Fixed:
    """`text` with all fixes that provably change nothing else."""
    chosen = _chosen(findings)
    edits = [_edit(text, finding) for finding in chosen if _is_understood(text, finding)]
    proved = _proved(text, [], edits, form)
    return Fixed(_edited(text, proved), len(proved), len(chosen) - len(proved))


def _proved(text: str, proved: list[Edit], edits: list[Edit], form: FileFormat) -> list[Edit]:
    """The edits that can be made together; if one is to blame, the others are still made."""
    together = [*proved, *edits]
    if not edits or is_proved(text, _edited(text, together), together, form):
        return together
    if len(edits) == 1:
        return proved
    half = len(edits) // 2
    return _proved(text, _proved(text, proved, edits[:half], form), edits[half:], form)


def fix_file(path: str | os.PathLike[str], findings: Iterable[LintFinding]) -> Fixed:
    """Rewrite a file, if there is something to fix."""
    text = read_file(path)
    fixed = fix_text(text, findings, file_format(path))
    if fixed.text != text:
        with atomic_write(path) as temporary:
            temporary.write_bytes(fixed.text.encode())
    return fixed


def apply_fixes(text: str, findings: Iterable[LintFinding], form: FileFormat = "shell") -> str:
    """`text` with all fixes that provably change nothing else."""
    return fix_text(text, findings, form).text


def _chosen(findings: Iterable[LintFinding]) -> list[LintFinding]:
    """Findings with a fix, in order; of those about the same text, the worst."""
    chosen: dict[tuple[int, int], LintFinding] = {}
    for finding in sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)):
        if finding.fix is not None and finding.place.span is not None:
            chosen.setdefault(finding.place.span, finding)
    return [chosen[span] for span in sorted(chosen)]


def _is_understood(text: str, finding: LintFinding) -> bool:
    """Whether the setting is in one piece and, if it is to be removed, part of a value."""
    place = finding.place
    assert place.span is not None
    # A bare flag may be the only element of a list, or the only argument of Docker's ENV.
    is_bare = place.within is None and text[place.span[0]] not in "\"'"
    return place.is_one_piece and (bool(finding.fix) or not is_bare)


def _edit(text: str, finding: LintFinding) -> Edit:
    span, within = finding.place.span, finding.place.within
    assert span is not None and finding.fix is not None
    return Edit(span, text[slice(*span)], finding.fix, within)


def _edited(text: str, edits: list[Edit]) -> str:
    parts, at = [], 0
    for edit in sorted(edits, key=lambda edit: edit.span):
        start, end = edit.span if edit.new else _removed(text, edit)
        parts += [text[at : max(start, at)], edit.new]
        at = max(end, at)
    return "".join([*parts, text[at:]])


def _removed(text: str, edit: Edit) -> tuple[int, int]:
    """What goes with a setting that is removed: blanks or a line, but only inside its value.

    "--a=1 \\          "--a=1 \\          NAME=--gone=2 python
     --gone=2 \\   →    --b=3"         →  NAME= python
     --b=3"
    """
    start, end = edit.span
    low, high = edit.within or edit.span
    line_start = text.rfind("\n", 0, start) + 1
    line_end = text.find("\n", end)
    before, after = text[line_start:start], text[end : line_end if line_end >= 0 else len(text)]
    is_own_line = not before.strip() and after.strip() in ("", "\\")
    if is_own_line and low < line_start and 0 <= line_end < high:
        return line_start, line_end + 1
    if edit.within is None and after.lstrip(" ").startswith(","):  # an entry of a dict
        end += after.index(",") + 1
        while text[end : end + 1] == " ":
            end += 1
        return start, end
    left = start
    while left > low and text[left - 1] in _BLANKS:
        left -= 1
    if low < left < start and text[left - 1] != "\n":
        return left, end
    if text[low - 1 : low] == "=":
        return start, end  # a blank may end the value here: NAME=--gone=2 python
    while end < high and text[end] in _BLANKS:
        end += 1
    return start, end
