"""Times and sizes for people: picoseconds as `1.25 ms`, bytes as `436 MB`."""

PS_PER_NS = 1_000
PS_PER_US = 1_000_000

_TIMES = ((10**12, "s"), (10**9, "ms"), (10**6, "µs"), (10**3, "ns"))
_SIZES = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"))


def format_time(ps: float) -> str:
    """`447 ms`, `1.25 ms`, `312 ns`: three significant digits."""
    return _scaled(ps, _TIMES, "ps")


def format_band(ps: float, low_ps: float, high_ps: float) -> str:
    """`12.1 s (11.5 … 13.4)`: all three in the unit of the first."""
    scale, unit = next(((s, u) for s, u in _TIMES if abs(ps) >= s * 0.9995), (1, "ps"))
    middle, low, high = (_three_digits(time / scale) for time in (ps, low_ps, high_ps))
    return f"{middle} {unit} ({low} … {high})"


def format_bytes(size: float) -> str:
    """`436 MB`, `1.07 GB`, `12 B`: decimal units, three significant digits."""
    return _scaled(size, _SIZES, "B")


def _scaled(value: float, units: tuple[tuple[int, str], ...], smallest: str) -> str:
    for scale, unit in units:
        # 0.9995 because 999.6 µs rounds to `1000 µs`, which should be `1 ms`.
        if abs(value) >= scale * 0.9995:
            return f"{_three_digits(value / scale)} {unit}"
    return f"{value:.0f} {smallest}"


def _three_digits(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:.0f}"
    digits = 1 if abs(value) >= 10 else 2
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
