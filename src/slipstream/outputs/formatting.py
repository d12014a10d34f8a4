"""Times, shares, counts and names as people read them, in a terminal and on a page."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from slipstream.units import PS_PER_US, format_band, format_time

if TYPE_CHECKING:
    from slipstream.machines.power import Power

SEPARATOR = " · "
"""between the parts of a name"""
_SIZE = re.compile(r"(.+) (\d[\d.,]* [kMGT]?B)")
_FORMULA = ("=", "+", "-", "@", "\t")
"""how a formula starts, in Excel, LibreOffice and Google Sheets"""


def op_text(phase: str, scope: str, description: str, phase_width: int = 0) -> str:
    """`backward · block/mlp · x @ w1ᵀ`: the phase, the scope and what was computed."""
    named = "" if phase == "other" else phase
    parts = (named.ljust(phase_width), scope, description)
    return SEPARATOR.join(part for part in parts if part.strip())


def count_text(count: float) -> str:
    """A mean of counts: `3`, or `0.3` where not every step has it."""
    return f"{count:,.0f}" if abs(count - round(count)) < 0.05 and count >= 0.5 else f"{count:.2g}"


def amount_text(value: float) -> str:
    """An amount of work, or a rate of it: `69,100`, `1.23M`, `4.05`; three significant digits."""
    if not math.isfinite(value):
        return "–"
    if abs(value) >= 0.9995e6:
        units = ((1e12, "T"), (1e9, "B"), (1e6, "M"))
        scale, letter = next(unit for unit in units if abs(value) >= 0.9995 * unit[0])
        return f"{value / scale:.3g}{letter}"
    if abs(value) >= 100:
        digits = 2 - math.floor(math.log10(abs(value)))
        return f"{round(value, digits):,.0f}"
    return f"{value:.3g}"


def step_text(us: float, steps: int) -> str:
    """`step 12.3 ms`, or `recording 12.3 ms` where no steps were found."""
    return f"{'step' if steps else 'recording'} {time_text(us)}"


def steps_text(steps: int) -> str:
    """What times cover: `median of 3 steps`, or the whole recording."""
    if not steps:
        return "the whole recording"
    return f"median of {plural(steps, 'step')}" if steps > 1 else "1 step"


def printable(text: str) -> str:
    """One line of `text`: names come from files, and may hold line breaks and escape codes."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def printable_lines(text: str) -> str:
    """`text` without control characters and marks of direction, but with its lines and tabs.

    Everything that Slipstream prints goes through here: a terminal obeys what it is sent.
    """
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else " " for c in text)


def csv_cell(value: Any) -> Any:
    """A value for CSV; a text that a spreadsheet would run as a formula gets a `'` in front."""
    if not isinstance(value, str):
        return value
    text = value.replace("\r", " ")  # Python's csv leaves it bare, and readers see a new row
    return f"'{text}" if text.startswith(_FORMULA) else text


def time_text(us: float) -> str:
    """`447 ms`; `–` if unknown."""
    return format_time(us * PS_PER_US) if math.isfinite(us) else "–"


def band_text(us: float, low_us: float, high_us: float) -> str:
    """`12.1 s (11.5 … 13.4)`: a time and its band."""
    return format_band(*(time * PS_PER_US for time in (us, low_us, high_us)))


def clock_text(power: Power) -> str:
    """`1,626 of 1,980 MHz`: the clock of a step, and the GPU's highest."""
    return f"{power.clock_hz / 1e6:,.0f} of {power.highest_hz / 1e6:,.0f} MHz"


def power_text(power: Power) -> str:
    """`612 of 700 W`: the mean over a step, and the cap; it also limits kernels between waits."""
    if power.is_capped and power.watts > 0.98 * power.cap_w:
        return f"at the {power.cap_w:,.0f} W cap"
    return f"{power.watts:,.0f} of {power.cap_w:,.0f} W"


def share_text(share: float, digits: int = 1) -> str:
    """`9.2%`; `–` if unknown. Only exact values read `100%` or `0%`."""
    if not math.isfinite(share):
        return "–"
    least = 10.0 ** -(digits + 2)
    if 1e-9 < share < least / 2:
        return f"<{least:.{digits}%}"
    if 1 - least / 2 < share < 1 - 1e-9:
        return f"{1 - least:.{digits}%}"
    return "100%" if abs(share - 1) < 1e-9 else f"{share:.{digits}%}"


def change_text(share: float) -> str:
    """`+2.0%` for a relative change, `same`; `–` if unknown."""
    if not math.isfinite(share):
        return "–"
    return "same" if abs(share) < 0.0005 else f"{share:+.1%}".replace("-", "−")


def time_cells(before_us: float, after_us: float) -> list[str]:
    """A time before, after, and its relative change."""
    change = ratio(after_us, before_us) - 1
    return [time_text(before_us), time_text(after_us), change_text(change)]


def number_text(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if math.isfinite(value) else "–"


def column_unit(times_us: Sequence[float]) -> tuple[str, float, int]:
    """One unit for a whole column: its name, its microseconds, and the digits worth showing."""
    largest = max((us for us in times_us if math.isfinite(us)), default=0.0)
    if largest >= 100e6:
        unit, scale = "s", 1e6
    else:
        unit, scale = ("ms", 1e3) if largest >= 1e3 else ("µs", 1.0)
    return unit, scale, 2 if largest < 10 * scale else 1


def plural(count: int, noun: str) -> str:
    """`1 step`, `3 steps`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def file_name(source: str) -> str:
    """`model.py:26` for `/a/long/path/model.py:26`; JSON has the whole path."""
    return source.rpartition("/")[2]


def name_and_size(text: str) -> tuple[str, str]:
    """`all-gather w1, w2 29.5 MB` as a name and a size; the size is empty where there is none."""
    found = _SIZE.fullmatch(text)
    return (found[1], found[2]) if found else (text, "")


def verdict_title(verdict: str) -> str:
    """A verdict as a title: `no difference` for `no different`, `no verdict` for `can't tell`."""
    return {"no different": "no difference", "can't tell": "no verdict"}.get(verdict, verdict)


def ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan
