"""The process in which XLA runs; requests and answers are lines of JSON.

    start    {topology, target_config, use_gpu}                  → {}
    lower    {module, function, keywords, out}                    → {devices, options, inputs}
    convert  {path, out}                                          → {partitions, …}
    compile  {path, options, devices, out, …}                     → {memory, seconds, devices}

XLA's log and the output of targets go to stderr, which the parent process keeps in a file.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slipstream.compiler.worker.rpc import Answer, serve_stdin


class Worker:
    """Keeps the topology between requests: building it takes longer than a small compile."""

    def __init__(self) -> None:
        self.devices: list[Any] = []
        self.target_config = ""

    def start(self, topology: str, target_config: str, use_gpu: bool) -> Answer:
        import jax  # noqa: F401

        from slipstream.compiler.worker.topology import describe, local_target_config

        model = ""
        if use_gpu:
            model, target_config = local_target_config()
        self.target_config = target_config
        self.devices = list(describe(topology, target_config).devices)
        return {"model": model, "devices": len(self.devices)}

    def lower(self, module: str, function: str, keywords: Mapping[str, Any], out: str) -> Answer:
        from slipstream.compiler.source_tracking import inputs_of, tracking
        from slipstream.compiler.worker.lowering import call_builder

        flags = os.environ.get("XLA_FLAGS")
        with tracking() as seen:
            build = getattr(import_target(module), function)
            lowered = call_builder(build, self.devices, keywords, self.target_config)
        if os.environ.get("XLA_FLAGS") != flags:
            # In the format of the log, so that it is kept with everything compiled from here.
            late = f"{module} sets XLA_FLAGS={os.environ.get('XLA_FLAGS')}"
            print(f"W0101 00:00:00.000000 0 worker.py:0] {late}", file=sys.stderr)
        Path(out).write_bytes(lowered.stablehlo)
        return {
            "devices": list(lowered.devices),
            "options": dict(lowered.options),
            "inputs": inputs_of(seen).to_json(),
        }

    def convert(self, path: str, out: str) -> Answer:
        from slipstream.compiler.worker.hlo_import import to_stablehlo

        published = to_stablehlo(Path(path).read_bytes())
        Path(out).write_bytes(published.stablehlo)
        return {
            "partitions": published.partitions,
            "replicas": published.replicas,
            "is_partitioned": published.is_partitioned,
            "unknown_calls": list(published.unknown_calls),
        }

    def compile(self, path: str, out: str, **request: Any) -> Answer:
        from slipstream.compiler.worker.pallas_calls import with_kernel_work
        from slipstream.compiler.worker.xla import compile_program

        began = time.monotonic()
        compiled = compile_program(Path(path).read_bytes(), self.devices, **request)
        Path(out).write_bytes(with_kernel_work(compiled.proto))
        return {
            "memory": dict(compiled.memory),
            "devices": compiled.devices,
            "seconds": time.monotonic() - began,
        }


def import_target(module: str) -> Any:
    """Import a file as a module, or a module by its dotted name."""
    if not module.endswith(".py"):
        sys.path.insert(0, os.getcwd())
        return importlib.import_module(module)
    path = Path(module).resolve()
    sys.path.insert(0, str(path.parent))
    sys.argv = [str(path)]
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = loaded
    spec.loader.exec_module(loaded)
    return loaded


if __name__ == "__main__":
    serve_stdin(Worker())
