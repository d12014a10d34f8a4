"""Variants of six models: predicted without a GPU first, measured on an H200 after that."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from accuracy_parts.measuring import error, signed, table

TEXT = """## Variants of models, predicted before they were measured

Six models, each with attention of XLA, cuDNN or Pallas; everything, products or nothing kept for
the backward pass; layers in a scan or written out; products in bf16 or fp8
(`tests/record/variants.py`). Predicted without a GPU by jaxlib {jaxlib}, measured with jax {jax}
after three seconds of warming up, when the power cap has set the clock. Of each set, the error is
that of the models of kernels of that day.
"""
SETS = {
    "variants": "The GPT and the mixture of experts: with the models of kernels as they were\n"
    "before, which had no clock. Their kernels then took part in the fit.",
    "later_variants": "A Llama with grouped-query attention and an encoder: after the fit, which\n"
    "they took no part in. The Llama's kernels over rows then took part in a second fit, with\n"
    "XLA's attention of other shapes.",
    "last_variants": "The layers of an 8B model, and a GPT with attention and MLP side by side:\n"
    "after the second fit, which they took no part in.",
}


def page(folder: Path) -> str:
    parts = []
    for name, text in SETS.items():
        files = [folder / f"{name}_predicted.json", folder / f"{name}.json"]
        if all(path.is_file() for path in files):
            before, after = (json.loads(path.read_text(encoding="utf-8")) for path in files)
            parts += [TEXT.format(jaxlib=before["jax"], jax=after["jax"])] if not parts else []
            parts += [text, "", *rows(before, after), ""]
    return "\n".join(parts)


def rows(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    pairs = {name: (before["variants"][name], found) for name, found in after["variants"].items()}
    lines, errors = [], {}
    for name, (said, found) in pairs.items():
        errors[name] = error(said["step_ms"], found["step_ms"])
        clock = f"{found['clock_mhz']:.0f} MHz"
        lines.append([name, f"{said['step_ms']:.1f}", f"{found['step_ms']:.1f}",
                      signed(errors[name]), clock])  # fmt: skip
    wrong = [
        (one, other)
        for one in pairs
        for other in pairs
        if pairs[one][1]["step_ms"] * 1.03 < pairs[other][1]["step_ms"]
        and pairs[one][0]["step_ms"] >= pairs[other][0]["step_ms"]
    ]
    sizes = [abs(each) for each in errors.values()]
    count = len(pairs) * (len(pairs) - 1) // 2
    of_one = sum(one.split()[0] == other.split()[0] for one, other in wrong)
    return [
        f"Predicted {when(before)}, measured {when(after)}.", "",
        table(["variant", "predicted, ms", "measured, ms", "error", "measured clock"], lines), "",
        f"- mean of absolute errors (goal 4%): **{statistics.mean(sizes):.1%}**",
        f"- the worst (goal 8%): **{max(sizes):.1%}**",
        f"- pairs more than 3% apart in the wrong order: **{len(wrong)}** of {count} pairs, "
        f"{of_one} of them variants of one model",
    ]  # fmt: skip


def when(facts: dict[str, Any]) -> str:
    return str(facts["date"]).removesuffix("+00:00").replace("T", " ") + " UTC"
