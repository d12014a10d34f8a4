"""Compiles the native code once: `python -m slipstream.sources.warmup`.

What is compiled is kept (see `slipstream.native`), so that the first command a person types is as
fast as the next. Anything that is not compiled here is compiled when it is first used.
"""

from __future__ import annotations

import importlib

from slipstream.native import Native

_MODULES = (
    "slipstream.sources.wire",
    "slipstream.sources.xevents",
    "slipstream.sources.xlines",
    "slipstream.sources.sqlite_pages",
    "slipstream.sources.nsys_ranges",
    "slipstream.profile.alignment",
    "slipstream.profile.executions",
    "slipstream.profile.grouping",
    "slipstream.profile.sweeps",
    "slipstream.profile.beside",
    "slipstream.serve.tracks",
    "slipstream.serve.tiles",
    "slipstream.serve.ranges",
    "slipstream.serve.finding",
    "slipstream.outputs.packets",
    "slipstream.outputs.tracks",
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
