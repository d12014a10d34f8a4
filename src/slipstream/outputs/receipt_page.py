"""A receipt as one page of HTML that needs nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from slipstream.outputs.receipt import Data, told, verdict_text
from slipstream.units import PS_PER_US, format_bytes, format_time

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; margin: 1rem 0 } td, th { padding: .2rem .8rem .2rem 0;
text-align: left; vertical-align: top; border-bottom: 1px solid #8884 } h1 { font-size: 1.4rem }
td.number { text-align: right } code, pre { font-size: .9em } .predicted { background: #fd08 }
@media (prefers-color-scheme: dark) { body { background: #111; color: #ddd } }
"""


def receipt_page(receipt: Data) -> str:
    """The page."""
    body = "\n".join(_body(receipt))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(receipt['verdict'])} · slipstream run</title>"
        f"<style>{_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _body(receipt: Data) -> Iterator[str]:
    yield f"<h1>{escape(verdict_text(receipt))}</h1>"
    if receipt["basis"] == "predicted":
        yield '<p class="predicted">All numbers are predicted; nothing ran on a device.</p>'
    rows = [(phase, text) for phase, text in told(receipt) if phase != "verdict"]
    if rows:
        yield _table(("phase", ""), rows)
    if receipt["arms"]:
        yield "<h2>Programs</h2>" + _table(_ARM_HEADS, [_arm(arm) for arm in receipt["arms"]])
    times = {name: part for name, part in receipt["overlap"].items() if part}
    if times:
        yield "<h2>Where a step goes</h2>" + _times(times)
    if receipt["notes"]:
        yield "<h2>Notes</h2><ul>" + "".join(f"<li>{escape(n)}</li>" for n in receipt["notes"])
        yield "</ul>"
    yield "<h2>To repeat it</h2>"
    about = {key: receipt[key] for key in ("repeat", "versions", "devices", "program", "files")}
    yield f"<pre>{escape(json.dumps(about, indent=1, default=str))}</pre>"


_ARM_HEADS = ("program", "flags", "step", "steps timed", "memory", "")


def _arm(arm: Data) -> tuple[str, ...]:
    flags = " ".join(f"{name}={value}" for name, value in arm["flags"].items())
    same = f"the same as {arm['same_program_as']}" if arm["same_program_as"] else ""
    return (
        arm["name"],
        flags,
        format_time(arm["step_us"] * PS_PER_US) if arm["step_us"] else "",
        str(arm["rounds"] or ""),
        format_bytes(arm["memory_bytes"]) if arm["memory_bytes"] is not None else "",
        arm["error"] or same,
    )


def _times(parts: Mapping[str, Mapping[str, float]]) -> str:
    names = list(next(iter(parts.values())))
    rows = [
        (name.replace("_", " "), *(format_time(p.get(name, 0) * PS_PER_US) for p in parts.values()))
        for name in names
    ]
    return _table(("", *parts), rows)


def _table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"
