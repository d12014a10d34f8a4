"""`slipstream doctor` as text and JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.text import Text

from slipstream.doctor.machine_facts import MachineFacts
from slipstream.doctor.problems import LEVELS, Problem
from slipstream.outputs.formatting import plural
from slipstream.outputs.terminal.layout import paragraph, wrap

_MARKS = {"error": "✗ ", "warning": "! ", "note": "· "}


def doctor_json(facts: MachineFacts, findings: Sequence[Problem]) -> dict[str, Any]:
    """What `doctor --json` prints; environment variables only where a finding quotes them."""
    return {
        "packages": dict(facts.packages),
        "gpus": None if facts.gpus is None else [asdict(gpu) for gpu in facts.gpus],
        "tpus": None if facts.tpus is None else list(facts.tpus),
        "links": None if facts.links is None else list(facts.links),
        "findings": [asdict(finding) for finding in findings],
    }


def render_doctor(facts: MachineFacts, findings: Sequence[Problem], width: int = 80) -> Text:
    """The machine in one line, then each problem: what, why, and the command that fixes it."""
    lines = wrap(_machine(facts), width)
    for finding in findings:
        lines += ["", *paragraph(finding.what, width, _MARKS[finding.level], "  ")]
        lines += paragraph(finding.why, width, "  ", "  ")
        # A command is to be copied: it stays on one line.
        lines.append(f"    {finding.fix}")
    return Text("\n".join([*lines, "", _verdict(findings)]))


def _machine(facts: MachineFacts) -> list[str]:
    parts = []
    if facts.tpus:
        parts += [f"{count} × TPU {name}" for name, count in Counter(facts.tpus).items()]
    elif facts.gpus is None:
        parts.append("nvidia-smi not found: GPUs and driver unknown")
    elif not facts.gpus:
        parts.append("no GPU")
    else:
        names = Counter(gpu.name for gpu in facts.gpus)
        parts += [f"{count} × {name}" for name, count in names.items()]
        parts.append(f"driver {facts.gpus[0].driver}")
    if facts.links:
        kinds = Counter(facts.links)
        parts.append("links " + ", ".join(sorted(kinds)))
    shown = ("jax", "jaxlib", "jax-cuda12-plugin", "jax-cuda13-plugin", "libtpu")
    parts += [f"{name} {facts.packages[name]}" for name in shown if name in facts.packages]
    return parts


def _verdict(findings: Sequence[Problem]) -> str:
    if not findings:
        return "no problems found"
    counts = Counter(finding.level for finding in findings)
    return ", ".join(plural(counts[level], level) for level in LEVELS if counts[level])
