"""Annotations for what may vary besides `Literal`, enums and `bool`.

def build(devices, *, fsdp: Divisor = 8, tensor: Divisor[1, 2, 4] = 1, batch: Range[1, 64] = 8): …
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from slipstream.errors import BadInput


@dataclass(frozen=True)
class Range:
    """A whole number from `low` to `high`; what is tried are the powers of two, and both ends.

    `batch: Range[1, 64] = 8` is short for `batch: Annotated[int, Range(1, 64)] = 8`, which type
    checkers accept too.
    """

    low: int
    high: int

    def __post_init__(self) -> None:
        ends = (self.low, self.high)
        if any(type(end) is not int for end in ends) or self.low > self.high:
            raise BadInput(
                f"Range[{self.low!r}, {self.high!r}] is not a range; expected two whole numbers, "
                "the smaller first: Range[1, 64]"
            )

    def __class_getitem__(cls, ends: Any) -> Any:
        if not isinstance(ends, tuple) or len(ends) != 2:
            raise BadInput(f"Range[{ends!r}] is not a range; expected two ends: Range[1, 64]")
        return Annotated[int, cls(*ends)]

    def __str__(self) -> str:
        return f"Range[{self.low}, {self.high}]"

    @property
    def values(self) -> tuple[int, ...]:
        """Both ends, and the powers of two between them: sizes that divide most things."""
        powers = (2**exponent for exponent in range(max(self.high, 1).bit_length()))
        return (*sorted({self.low, self.high, *(n for n in powers if self.low < n < self.high)}),)


@dataclass(frozen=True)
class DivisorOfDevices:
    """Marks a parameter as a divisor of the number of devices."""

    sizes: tuple[int, ...] = ()
    """those to try; empty for all divisors"""

    def __post_init__(self) -> None:
        if any(type(size) is not int or size < 1 for size in self.sizes):
            listed = ", ".join(map(repr, self.sizes))
            raise BadInput(
                f"Divisor[{listed}] are no sizes of a mesh axis; expected whole numbers from 1 "
                "on: Divisor[1, 2, 4, 8]"
            )

    def __str__(self) -> str:
        return f"Divisor[{', '.join(map(str, self.sizes))}]" if self.sizes else "Divisor"


if TYPE_CHECKING:
    Divisor = Annotated[int, DivisorOfDevices()]
else:

    class Divisor:
        """A divisor of the number of devices; several of them are the axes of a mesh over all.

        `tensor: Divisor[1, 2, 4, 8] = 1` tries these sizes only. It is short for
        `Annotated[int, DivisorOfDevices((1, 2, 4, 8))]`, which type checkers accept too.
        """

        def __class_getitem__(cls, sizes: Any) -> Any:
            listed = sizes if isinstance(sizes, tuple) else (sizes,)
            return Annotated[int, DivisorOfDevices(listed)]
