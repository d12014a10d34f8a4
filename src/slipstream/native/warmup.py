"""Compiles the native code once: `python -m slipstream.native.warmup`.

What is compiled is kept (see `slipstream.native`), so that the first command a person types is as
fast as the next. Anything that is not compiled here is compiled when it is first used.
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
