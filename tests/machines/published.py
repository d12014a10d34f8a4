"""The benchmark that holds the collective model against published tables, as a module."""

import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent.parent


def benchmark() -> ModuleType:
    path = ROOT / "benchmarks" / "collectives.py"
    spec = importlib.util.spec_from_file_location("benchmarks_collectives", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
