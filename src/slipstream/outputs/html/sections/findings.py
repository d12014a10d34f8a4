"""What slows the step, how much it costs, and how to fix it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from slipstream.outputs.formatting import file_name, plural, ratio, share_text, time_text
from slipstream.outputs.html.markup import Html, join, tag
from slipstream.outputs.html.page import Section, notes_of
from slipstream.outputs.html.tables import named_cell, with_equals
from slipstream.results.diagnosis import BASES, Diagnosis, Exhibit, Finding, Gain, Remedy

MAX_EXHIBITS = 6
NOTHING_TO_TYPE = "# see the note"


def findings_section(diagnosis: Diagnosis, path: str = "PATH") -> Section:
    """Findings, certain gains first; then rules that could not tell."""
    found = diagnosis.findings
    if found:
        items = [_finding(one, diagnosis, path) for one in found]
        body = tag("ol", items, class_="findings")
    else:
        looked = plural(len(diagnosis.clear), "rule")
        body = tag("p", f"No problems found by {looked}.", class_="empty")
    return Section(
        "findings",
        "Findings",
        join((body, _abstained(diagnosis), notes_of(diagnosis.notes))),
        _lede(diagnosis),
        str(len(found)) if found else "",
    )


def _lede(diagnosis: Diagnosis) -> str:
    if not diagnosis.findings:
        return "No rule found anything that costs this step time."
    if any(one.is_wrong for one in diagnosis.findings):
        return "This program computes wrong results: fix that before anything else."
    sure = sum(1 for one in diagnosis.findings if one.gain.low_us > 0)
    counted = f" {plural(sure, 'gain')} {'is' if sure == 1 else 'are'} certain." if sure else ""
    return f"What costs this step time, certain gains first.{counted}"


def _finding(finding: Finding, diagnosis: Diagnosis, path: str) -> Html:
    amount, below = _amount(finding.gain, diagnosis)
    if finding.is_wrong:
        amount, below = "wrong", "results, not time"
    place = f"finding-{finding.rule}"
    link = tag("a", _capital(finding.title), href=f"#{place}", class_="here")
    text = [tag("h3", link), tag("p", _sentence(finding.evidence))]
    if finding.exhibits:
        text.append(_exhibits(finding.exhibits[:MAX_EXHIBITS]))
    text += [
        _change(change, path, f"{finding.rule}-{at}") for at, change in enumerate(finding.changes)
    ]
    text.append(_basis(finding, path))
    gain = tag("div", amount, tag("small", below), class_="gain")
    return tag("li", gain, tag("div", text), class_="finding", id=place, data_rule=finding.rule)


def _amount(gain: Gain, diagnosis: Diagnosis) -> tuple[str, str]:
    step_us, whole = diagnosis.step_us, "step" if diagnosis.steps else "recording"
    if gain.us is not None:
        share = share_text(ratio(gain.us, step_us))
        return f"−{time_text(gain.us)}", f"{share} of the {whole}, {gain.basis}"
    if gain.high_us is not None:
        share = share_text(ratio(gain.high_us, step_us))
        return f"≤ {time_text(gain.high_us)}", f"at most {share} of the {whole}"
    return "?", "gain unknown"


def _exhibits(exhibits: Sequence[Exhibit]) -> Html:
    """The ops that show the finding: description, note, source, count, time."""
    rows = [_exhibit(one) for one in exhibits]
    return tag("table", tag("tbody", rows), class_="exhibits", aria_label="Ops concerned")


def _exhibit(one: Exhibit) -> Html:
    """One op, or all equal ones of the layers."""
    times, us = one.equal_times or one.times, one.equal_us or one.us
    name = with_equals(one.name, len(one.equal))
    return tag(
        "tr",
        tag("td", named_cell(one.description or one.name, name)),
        tag("td", one.note, class_="w"),
        tag("td", file_name(one.source), class_="c w"),
        tag("td", f"{times} ×" if times > 1 else "", class_="n w"),
        tag("td", time_text(us) if us else "", class_="n"),
    )


def _change(change: Remedy, path: str, name: str) -> Html:
    note = tag("p", _sentence(change.note), class_="note") if change.note else None
    if change.text == NOTHING_TO_TYPE:
        return join(note)
    text = tag("pre", _with_path(change.text, path), id=name)
    copy = tag("button", "Copy", type="button", class_="button", data_copy=name)
    return join((tag("div", text, copy, class_="do"), note))


def _basis(finding: Finding, path: str) -> Html:
    parts = [finding.gain.why or BASES.get(finding.gain.basis, "")]
    if finding.see:
        parts.append(f"More: {_with_path(finding.see, path)}")
    said = [tag("span", " ".join(_sentence(part) for part in parts if part))]
    if finding.sources:
        said.append(tag("span", " See "))
        said += [
            tag("span", ", " if at else "", _source(s)) for at, s in enumerate(finding.sources)
        ]
    return tag("p", said, class_="note")


def _source(source: str) -> Html:
    """A source of advice; addresses become links."""
    name, _, address = source.rpartition(" ")
    if not address.startswith("https://"):
        return join(source)
    shown = name.rstrip(":,( ") or address.removeprefix("https://").removesuffix(".html")
    return tag("a", shown, href=address.rstrip(")"), rel="noreferrer")


def _with_path(text: str, path: str) -> str:
    """A command with the profile's own name in it."""
    return re.sub(r"\bPATH\b", path, text)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _sentence(text: str) -> str:
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def _abstained(diagnosis: Diagnosis) -> Html | None:
    if not diagnosis.abstained:
        return None
    rows = [(tag("dt", one.rule), tag("dd", one.why)) for one in diagnosis.abstained]
    head = tag("summary", f"{plural(len(rows), 'rule')} could not tell")
    return tag("details", head, tag("dl", rows, class_="pairs"))
