"""A receipt as `slipstream run` prints it: a line for each phase, then the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from slipstream.units import PS_PER_US, format_bytes, format_time

Data = Mapping[str, Any]
"""a receipt as JSON"""
RECORDED = "recorded"
"""the line that says how recorded and timed steps differ"""
NOTABLE = 0.1
"""a difference between recorded and timed steps that is worth a sentence"""


def receipt_lines(receipt: Data) -> Iterator[tuple[str, str]]:
    """(phase, text) for each phase after the profile and its costs."""
    share = receipt["pgle"].get("device_time_with_a_cost")
    if share is not None and "costs" not in receipt["phases"] and receipt["basis"] == "measured":
        # Everything happened inside the job.
        yield "costs", f"{receipt['pgle']['found']} instructions · {share:.1%} of device time"
    if receipt["pgle"].get("auto"):
        yield "profile", _auto_text(receipt)
    if receipt["arms"]:
        yield "compile", _compile_text(receipt)
    timed = [arm for arm in receipt["arms"] if arm["rounds"]]
    if timed:
        yield "compare", _compare_text(receipt, timed)
    for other in receipt.get("functions", ())[1:]:
        yield "also", function_text(other)
    if recorded := recorded_text(receipt):
        yield RECORDED, recorded
    yield "verdict", verdict_text(receipt)
    if receipt.get("together"):
        yield "together", _together_text(receipt["together"])


def verdict_text(receipt: Data) -> str:
    """`no different: 446 → 445 ms, −0.1% (95%: −0.4 … +0.2%). Why.`"""
    parts = [f"{receipt['verdict']}{_times(receipt)}", _sentence(receipt["why"])]
    if receipt["basis"] == "predicted":
        parts.insert(0, "predicted, not measured:")
    gain = receipt["bounds"].get("overlap_gain")
    if gain is not None:
        parts.append(_sentence(receipt["bounds"]["why"]))
    return " ".join(parts)


def recorded_text(receipt: Data) -> str | None:
    """How far recorded and timed steps differ, since recording takes time; None if hardly."""
    differences = []
    for name, recorded in receipt["overlap"].items():
        timed = receipt["step_us"].get(name)
        # Without a winner, the time after is that of a program which was not recorded.
        is_recorded = name == "before" or receipt["chosen"] != "original"
        wall = recorded.get("wall") if recorded and is_recorded else None
        if wall and timed and abs(wall / timed - 1) > NOTABLE:
            differences.append((abs(wall / timed - 1), wall, timed))
    if not differences or receipt["basis"] == "predicted":
        return None
    _, *times = max(differences)
    wall, timed = (format_time(us * PS_PER_US) for us in times)
    return (
        f"a step took {wall} while it was recorded and {timed} when it was timed: where the time "
        "goes, and what overlap could gain, is of the recorded step."
    )


def _times(receipt: Data) -> str:
    change, step = receipt["change"], receipt["step_us"]
    if change is None or step["before"] is None or step["after"] is None:
        return ":"
    before, after = (format_time(step[name] * PS_PER_US) for name in ("before", "after"))
    text = f": {before} → {after}, {change['estimate']:+.1%}"
    if "low" in change:
        text += f" (95%: {change['low']:+.1%} … {change['high']:+.1%})"
    return text + "."


def function_text(function: Data) -> str:
    """One of several functions: its part of the device time, and what was found."""
    return f"{_part_text(function['program'])} · {_outcome_text(function)}"


def _part_text(program: Data) -> str:
    """`jit_step, 93% of the device time`"""
    share, name = program.get("share"), program.get("name") or ""
    return f"{name}, {share:.0%} of the device time" if share is not None else name


def _outcome_text(function: Data) -> str:
    """`faster: 4.10 → 3.98 ms, −2.9% (95%: …). costs runs`"""
    kept = (
        "the original stays" if function["chosen"] == "original" else f"{function['chosen']} runs"
    )
    times = _times(function)
    why = _sentence(function["why"]) if times == ":" else _sentence(kept)
    return f"{function['verdict']}{times} {why}"


def _together_text(together: Data) -> str:
    before, after = (format_time(together[n] * PS_PER_US) for n in ("before_us", "after_us"))
    change = together["change"]
    interval = f"{change['low']:+.1%} … {change['high']:+.1%}"
    return f"a step {before} → {after}, {change['estimate']:+.1%} ({interval}), all functions."


def _compile_text(receipt: Data) -> str:
    pgle = receipt["pgle"]
    parts = [*filter(None, [_part_text(receipt["program"])]), _pgle_text(receipt)]
    if pgle.get("schedule_changed") is not None:
        parts.append("schedule changed" if pgle["schedule_changed"] else "schedule unchanged")
    failed = [arm for arm in receipt["arms"] if arm["error"]]
    parts += [f"{arm['name']}: not compiled ({arm['error']})" for arm in failed]
    parts += _same_texts(receipt["arms"])
    memory = _memory_text(receipt)
    return " · ".join([*parts, *([memory] if memory else [])])


def _same_texts(arms: Sequence[Data]) -> Iterator[str]:
    """`the same program as the original: costs; no command buffers`, for each that has some."""
    for first in dict.fromkeys(arm["same_program_as"] for arm in arms if arm["same_program_as"]):
        names = [arm["name"] for arm in arms if arm["same_program_as"] == first]
        what = "the original" if first == "original" else first
        yield f"the same program as {what}: {'; '.join(names)}"


def _auto_text(receipt: Data) -> str:
    auto = receipt["pgle"]["auto"]
    size = auto["profile_bytes"]
    profile = f"a profile of {format_bytes(size)}" if size else "an empty profile"
    return (
        f"JAX profiled {auto['profiling_runs']} calls of {receipt['program'].get('name')} and "
        f"recompiled it with {profile}"
    )


def _pgle_text(receipt: Data) -> str:
    pgle = receipt["pgle"]
    if not pgle.get("applied"):
        return f"PGLE not used: {pgle.get('why', 'unknown')}"
    said = receipt.get("phases", {}).get("costs", {}).get("xla") or {}
    missing = said.get("missing", pgle.get("missing"))
    by = ""
    if said or receipt["basis"] == "predicted":
        by = ", as XLA logged"
    elif pgle.get("checked_by_xla"):
        by = ", as XLA's checker confirmed"
    return f"PGLE used{by} (costs found {pgle.get('found')}, missing {missing})"


def _memory_text(receipt: Data) -> str:
    memory = receipt["memory_bytes"]
    before, after = memory.get("before"), memory.get("after")
    if before is None or after is None or before == after:
        return ""
    return f"memory {'+' if after > before else '−'}{format_bytes(abs(after - before))}"


def _compare_text(receipt: Data, timed: Sequence[Data]) -> str:
    if receipt["basis"] == "predicted":
        arms = ", ".join(
            f"{arm['name']} {format_time(arm['step_us'] * PS_PER_US)}" for arm in timed
        )
        return f"simulated: {arms}"
    counts = " + ".join(str(arm["rounds"]) for arm in timed)
    return f"{counts} turns, interleaved: {', '.join(arm['name'] for arm in timed)}"


def _sentence(text: str) -> str:
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")
