"""What trackers get of a run: numbers, texts and files."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from slipstream.reading import read_object

PREFIX = "slipstream"


@dataclass(frozen=True)
class Tracked:
    """A receipt as trackers take it."""

    metrics: Mapping[str, float]
    """such as `slipstream/step_us/before`"""
    texts: Mapping[str, str]
    """`verdict`, `chosen` and `why`"""
    files: tuple[Path, ...]
    """the receipt, and its page"""
    profiles: Mapping[str, Path]
    """folders of recordings: `before`, `after`"""


class Tracker(Protocol):
    """One tracker that the job uses, or that was asked for."""

    @property
    def text(self) -> str:
        """Which run of it: `Weights & Biases run 3k2x`."""
        ...

    def log(self, tracked: Tracked) -> None: ...

    def log_report(self, page: Path) -> None:
        """The report, which is there later than the receipt."""
        ...


def tracked_of(receipt: Path, page: Path | None = None) -> Tracked:
    """What to log of a receipt's file."""
    data = read_object(receipt, "a receipt")
    files = data.get("files") or {}
    return Tracked(
        metrics_of(data),
        {name: str(data.get(name) or "") for name in ("verdict", "chosen", "why")},
        (receipt, page) if page is not None else (receipt,),
        {
            name: Path(files[name])
            for name in ("before", "after")
            if name in files and Path(files[name]).is_dir()
        },
    )


def metrics_of(receipt: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a receipt: the step before and after, its parts, memory, and the change."""
    found: dict[str, Any] = {}
    for when in ("before", "after"):
        found[f"step_us/{when}"] = (receipt.get("step_us") or {}).get(when)
        found[f"memory_bytes/{when}"] = (receipt.get("memory_bytes") or {}).get(when)
        parts = (receipt.get("overlap") or {}).get(when) or {}
        found |= {f"{part}_us/{when}": us for part, us in parts.items()}
    change = receipt.get("change") or {}
    found |= {f"change/{name}": change.get(name) for name in ("estimate", "low", "high")}
    found["overlap_gain"] = (receipt.get("bounds") or {}).get("overlap_gain")
    return {
        f"{PREFIX}/{name}": float(value)
        for name, value in found.items()
        if isinstance(value, int | float) and math.isfinite(value)
    }
