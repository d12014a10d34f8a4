"""Bars made of block characters, exact to an eighth of a column."""

_EIGHTHS = " ▏▎▍▌▋▊▉"


def bar(share: float, width: int) -> str:
    """A bar that fills `share` of `width` columns; whatever isn't nothing shows at least `▏`."""
    clipped = min(max(share, 0.0), 1.0) if share == share else 0.0
    eighths = round(clipped * width * 8)
    if clipped > 0 and eighths == 0:
        eighths = 1
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(width)
