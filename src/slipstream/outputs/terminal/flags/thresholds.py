"""`slipstream flags thresholds` as text and JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.text import Text

from slipstream.flags.thresholds.thresholds import ALL_REDUCE, MIB, ExplainedSize, Thresholds
from slipstream.outputs.formatting import plural
from slipstream.outputs.terminal.layout import pad, paragraph, wrap
from slipstream.units import format_bytes

_NAMES = 24
"""columns that names of figures take"""
_SIZES = 8


def thresholds_json(found: Thresholds) -> dict[str, Any]:
    """What `flags thresholds --json` prints."""
    return {**asdict(found), "flags": dict(found.flags), "xla_flags": found.xla_flags}


def render_thresholds(found: Thresholds, width: int = 80) -> Text:
    """Every figure with its basis, then the flags to copy."""
    layers = plural(found.layers, "layer") if found.layers else "no layers found"
    lines = [f"{found.source} · {layers}", ""]
    figures = (
        ("weights of a layer", found.layer_weights),
        ("all weights by layer", found.weights_by_layer),
        ("the guide's figure", found.as_the_guide),
        ("gradients of a layer", found.layer_gradients),
        ("all gradients", found.all_gradients),
        ("all-gather threshold", found.all_gather),
        ("reduce-scatter threshold", found.reduce_scatter),
    )
    for name, figure in figures:
        lines += _figure_lines(name, figure, width)
    lines += ["", *_ladder_lines(found, width), ""]
    for note in found.notes:
        lines += paragraph(note, width, "! ", "  ")
    flags = [f"--{name}={value}" for name, value in found.flags.items()]
    lines += ["", 'export XLA_FLAGS="$XLA_FLAGS \\', *(f"  {flag} \\" for flag in flags[:-1])]
    return Text("\n".join([*lines, f'  {flags[-1]}"']).replace("\n\n\n", "\n\n"))


def _figure_lines(name: str, figure: ExplainedSize, width: int) -> list[str]:
    first = f"{pad(name, _NAMES)}  {pad(format_bytes(figure.bytes), _SIZES, right=True)}  "
    return paragraph(figure.basis, width, first, " " * len(first))


def _ladder_lines(found: Thresholds, width: int) -> list[str]:
    rungs = [f"{size // MIB}" for size in found.all_reduce]
    lines = wrap(rungs, width - 30, " ", "  ")
    text = f"{ALL_REDUCE}, MiB: {found.all_reduce_basis}"
    return [*paragraph(text, width), *lines]
