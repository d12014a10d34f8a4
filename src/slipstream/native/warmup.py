"""Compiles all native code: `python -m slipstream.native.warmup`.

The machine code is cached (see `code_cache`), so that a user's first command is as fast as the
next. Whatever is not compiled here is compiled on first use.
"""

from __future__ import annotations

import importlib

from slipstream.native import Native

_MODULES = (
    "slipstream.sources.wire",
    "slipstream.sources.xplane.events",
    "slipstream.sources.xplane.lines",
    "slipstream.sources.nsys.sqlite_pages",
    "slipstream.sources.nsys.ranges",
    "slipstream.profile.attribution.alignment",
    "slipstream.profile.attribution.executions",
    "slipstream.profile.grouping",
    "slipstream.profile.timeline.scans",
    "slipstream.profile.timeline.concurrency",
    "slipstream.serve.tracks",
    "slipstream.serve.tiles",
    "slipstream.serve.range_summary",
    "slipstream.serve.search",
    "slipstream.outputs.perfetto.packets",
    "slipstream.outputs.perfetto.track_layout",
    "slipstream.simulate.clock",
    "slipstream.simulate.window_clock",
)


def native_functions() -> list[Native]:
    """Every native function of the package."""
    modules = [importlib.import_module(name) for name in _MODULES]
    return [value for module in modules for value in vars(module).values() if _is_native(value)]


def _is_native(value: object) -> bool:
    return isinstance(value, Native)


if __name__ == "__main__":
    for function in native_functions():
        function.prepare()
