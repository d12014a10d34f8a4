"""The nearest valid name, for errors."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, valid: Iterable[str]) -> str:
    """`; did you mean H200?`, or just `;` when nothing is near."""
    spelled = {one.lower(): one for one in valid}
    close = difflib.get_close_matches(name.lower(), spelled, n=1, cutoff=0.5)
    return f"; did you mean {spelled[close[0]]}?" if close else ";"
