"""Results that notebooks show as tables and plots.

Results know nothing of outputs: the public package says who draws them, when it is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar


class Inline:
    """A result that Jupyter shows as HTML in place of its `repr`."""

    draw: ClassVar[Callable[[object], str | None] | None] = None
    """from a result to HTML; None for its `repr`"""

    def _repr_html_(self) -> str | None:
        return Inline.draw(self) if Inline.draw is not None else None
