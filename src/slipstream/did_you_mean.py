"""Suggestions for misspelt names, worded the same everywhere."""

from __future__ import annotations

from collections.abc import Iterable


def close_matches(
    name: str, valid: Iterable[str], most: int = 1, cutoff: float = 0.5
) -> tuple[str, ...]:
    """The valid names most similar to `name` ignoring case, the most similar first."""
    import difflib

    spellings = {one.lower(): one for one in valid}
    close = difflib.get_close_matches(name.lower(), spellings, n=most, cutoff=cutoff)
    return tuple(spellings[one] for one in close)


def edit_distance(one: str, other: str, most: int = 2) -> int:
    """Letters to change, add, remove or swap with their neighbour; `most + 1` if it is more."""
    if abs(len(one) - len(other)) > most:
        return most + 1
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        earlier, before, row = before, row, [i]
        for j, b in enumerate(other, 1):
            best = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and one[i - 2] == b:
                best = min(best, earlier[j - 2] + 1)
            row.append(best)
        if min(row) > most:
            return most + 1
    return min(row[-1], most + 1)


def certain_match(name: str, valid: Iterable[str], most: int = 2) -> str | None:
    """The one valid name within `most` letters of `name`; None if there is none, or a rival."""
    near = [one for one in valid if edit_distance(name, one, most) <= most]
    return near[0] if len(near) == 1 else None


def did_you_mean(name: str, valid: Iterable[str], most: int = 1, cutoff: float = 0.5) -> str:
    """`did you mean H200? `, to be followed by more text; empty if no valid name is similar."""
    close = close_matches(name, valid, most, cutoff)
    return f"did you mean {' or '.join(close)}? " if close else ""


def no_such(what: str, name: str, valid: Iterable[str]) -> str:
    """`there is no preset 'fdsp'; did you mean fsdp? choose from: …`."""
    names = list(valid)
    guess = did_you_mean(name, names)
    return f"there is no {what} {name!r}; {guess}choose from: {', '.join(names)}"
