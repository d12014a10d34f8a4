"""Presets as files for jobs: shell, env file, JSON, Python, Slurm, Kubernetes."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from typing import Any

from slipstream.did_you_mean import no_such
from slipstream.errors import BadInput
from slipstream.flags.presets.definitions import GUIDES, HERE
from slipstream.flags.presets.presets import ComposedPresets, ResolvedEntry
from slipstream.flags.presets.table import PRESETS
from slipstream.outputs.terminal.layout import paragraph

_WIDTH = 84
_TODAY = {
    "kept": "still valid",
    "renamed": "renamed since",
    "default": "now the default",
    "retired": "retired since",
    "withheld": "not recommended",
    "newer": "not in this jaxlib yet",
    "added": "needed today, in no guide",
    "found": "found by a search",
}


def render(composed: ComposedPresets, form: str) -> str:
    """Presets in one form, a key of `FORMS`; comments give reasons if the form allows them."""
    if form not in FORMS:
        raise BadInput(no_such("form", form, FORMS))
    return FORMS[form](composed)


def environment(composed: ComposedPresets) -> dict[str, str]:
    """All settings as environment variables."""
    flags = {
        variable: " ".join(f"--{name}={value}" for name, value in flags.items())
        for variable, flags in composed.flags.items()
    }
    return flags | composed.variables


def preset_json(composed: ComposedPresets) -> dict[str, Any]:
    """What `flags preset --json` prints."""
    return {
        "presets": list(composed.presets),
        "jaxlib": composed.jaxlib_version,
        "gpu": composed.gpu,
        "libtpu": composed.libtpu,
        "environment": environment(composed),
        "settings": [_row(one) for one in composed.settings],
        "left_out": [_row(one) for one in composed.left_out],
    }


def list_lines(width: int = 80) -> list[str]:
    """Every preset with its purpose."""
    longest = max(len(preset.name) for preset in PRESETS) + 2
    lines: list[str] = []
    for preset in PRESETS:
        first = preset.name.ljust(longest)
        lines += paragraph(preset.purpose, width, first, " " * longest)
    return lines


def _row(one: ResolvedEntry) -> dict[str, Any]:
    guide = GUIDES.get(one.entry.guide)
    return {
        "name": one.name,
        "value": one.value,
        "preset": one.preset,
        "reason": one.entry.reason,
        "guide": guide.title if guide else HERE,
        "source": guide.source if guide else None,
        "said": one.entry.as_said,
        "today": one.today,
        "because": one.because,
    }


def _title(composed: ComposedPresets) -> str:
    gpu = f" on {composed.gpu}" if composed.gpu else ""
    release = composed.libtpu or f"jaxlib {composed.jaxlib_version}"
    return f"{', '.join(composed.presets)} for {release}{gpu}"


def _comment(one: ResolvedEntry) -> str:
    """`Why. (the guide, what it is today: because)`."""
    guide = GUIDES.get(one.entry.guide)
    today = _TODAY[one.today]
    where = f"{guide.title}: {one.entry.as_said}; {today}" if guide else today
    return " ".join(f"{one.entry.reason} ({where}) {one.because}".split())


def _comments(text: str) -> list[str]:
    return paragraph(text, _WIDTH, "# ", "# ")


def _left_out(composed: ComposedPresets) -> Iterator[str]:
    if composed.left_out:
        yield "# Left out:"
    for one in composed.left_out:
        said = one.entry.as_said or one.entry.name
        yield from paragraph(
            f"{said}: {_TODAY[one.today]}. {one.because}", _WIDTH, "#   ", "#     "
        )


def _sh(composed: ComposedPresets) -> str:
    return "\n".join(_sh_lines(composed)) + "\n"


def _sh_lines(composed: ComposedPresets) -> Iterator[str]:
    yield f"# {_title(composed)}"
    for one in composed.settings:
        yield from _comments(_comment(one))
        if one.entry.is_flag:
            word = f"--{one.name}={one.value}"
            variable = one.entry.variable
            yield f'{variable}="${{{variable}:-}} {_in_double_quotes(word)}"'
        else:
            yield f"export {one.name}={shlex.quote(one.value)}"
    for variable in composed.flags:
        yield f"export {variable}"
    yield from _left_out(composed)


def _in_double_quotes(text: str) -> str:
    return re.sub(r'([\\"$`])', r"\\\1", text)


def _slurm(composed: ComposedPresets) -> str:
    lines = [
        "#!/bin/bash",
        "#SBATCH --gpus-per-node=8",
        "#SBATCH --ntasks-per-node=8  # one process for each GPU",
        "#SBATCH --export=ALL",
        "",
        *_sh_lines(composed),
        "",
        "srun python train.py",
    ]
    return "\n".join(lines) + "\n"


def _dotenv(composed: ComposedPresets) -> str:
    lines = [f"# {_title(composed)}"]
    for one in composed.settings:
        lines += _comments(f"{one.name}: {_comment(one)}")
    lines += [f"{name}={value}" for name, value in environment(composed).items()]
    return "\n".join([*lines, *_left_out(composed)]) + "\n"


def _json(composed: ComposedPresets) -> str:
    return json.dumps(environment(composed), indent=2) + "\n"


def _python(composed: ComposedPresets) -> str:
    lines = [f"# {_title(composed)}", "# Before the first import of jax.", "import os", ""]
    for variable in composed.flags:
        lines.append(f'os.environ["{variable}"] = os.environ.get("{variable}", "") + (')
        for one in composed.settings:
            if not one.entry.is_flag or one.entry.variable != variable:
                continue
            lines += ["    " + line for line in _comments(_comment(one))]
            lines.append("    " + _literal(f" --{one.name}={one.value}"))
        lines.append(")")
    for one in composed.settings:
        if not one.entry.is_flag:
            lines += _comments(_comment(one))
            lines.append(f'os.environ["{one.name}"] = {_literal(one.value)}')
    return "\n".join([*lines, *_left_out(composed)]) + "\n"


def _literal(text: str) -> str:
    return json.dumps(text)


def _k8s(composed: ComposedPresets) -> str:
    lines = [f"# {_title(composed)}", "env:"]
    for one in composed.settings:
        lines += _comments(f"{one.name}: {_comment(one)}")
    for variable, flags in composed.flags.items():
        lines += [f"- name: {variable}", "  value: >-"]
        lines += [f"    --{name}={value}" for name, value in flags.items()]
    for name, value in composed.variables.items():
        lines += [f"- name: {name}", f"  value: {_literal(value)}"]
    return "\n".join([*lines, *_left_out(composed)]) + "\n"


FORMS: dict[str, Callable[[ComposedPresets], str]] = {
    "sh": _sh,
    "dotenv": _dotenv,
    "json": _json,
    "python": _python,
    "slurm": _slurm,
    "k8s": _k8s,
}
