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


def did_you_mean(name: str, valid: Iterable[str], most: int = 1, cutoff: float = 0.5) -> str:
    """`did you mean H200? `, to be followed by more text; empty if no valid name is similar."""
    close = close_matches(name, valid, most, cutoff)
    return f"did you mean {' or '.join(close)}? " if close else ""


def no_such(what: str, name: str, valid: Iterable[str]) -> str:
    """`there is no preset 'fdsp'; did you mean fsdp? choose from: …`."""
    names = list(valid)
    guess = did_you_mean(name, names)
    return f"there is no {what} {name!r}; {guess}choose from: {', '.join(names)}"
