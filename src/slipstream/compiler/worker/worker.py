"""The process in which XLA runs; requests and answers are lines of JSON.

    start    {topology, target_config, use_gpu}                  → {}
    inspect  {module, function, keywords, traces, domain}         → {devices, arguments_bytes, …}
    lower    {module, function, keywords, out}                    → {devices, options, inputs, …}
    convert  {path, out}                                          → {partitions, …}
    compile  {path, options, devices, out, …}                     → {memory, seconds, devices}
             {…, scheduled}                     a file for the program as XLA's scheduler leaves it
             {…, sequences, fingerprint}        in this order               → {…, problem}

XLA's log and the output of targets go to stderr, which the parent process keeps in a file.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from textwrap import shorten
from typing import Any

from slipstream.compiler.source_tracking import Seen, inputs_of, tracking
from slipstream.compiler.worker.rpc import Answer, serve_stdin

MOST_SAID = 100
"""characters of an error of JAX in a message"""


class Worker:
    """Keeps the topology between requests: building it takes longer than a small compile."""

    def __init__(self) -> None:
        self.devices: list[Any] = []
        self._given: list[Any] = []
        """the same for targets, with memories if JAX allows it"""
        self._without = ""
        """why they are without"""
        self.target_config = ""
        self._seen = Seen()
        self._xla_flags = os.environ.get("XLA_FLAGS")

    def start(self, topology: str, target_config: str, use_gpu: bool) -> Answer:
        import jax  # noqa: F401

        from slipstream.compiler.worker.topology import describe, local_target_config
        from slipstream.jaxhooks.compat import JaxChanged
        from slipstream.jaxhooks.target_device import with_memories

        model = ""
        if use_gpu:
            model, target_config = local_target_config()
        self.target_config = target_config
        self.devices = self._given = list(describe(topology, target_config).devices)
        try:
            self._given = with_memories(self.devices)
        except JaxChanged as changed:
            self._without = str(changed)
        return {"model": model, "devices": len(self.devices)}

    def inspect(
        self, module: str, function: str, keywords: Mapping[str, Any], traces: bool, domain: int
    ) -> Answer:
        from slipstream.compiler.worker.inspecting import inspect_built

        return self._built(
            module,
            function,
            lambda build, devices: inspect_built(
                build, devices, keywords, self.target_config, traces=traces, domain=domain
            ),
        )

    def lower(self, module: str, function: str, keywords: Mapping[str, Any], out: str) -> Answer:
        from slipstream.compiler.worker.lowering import call_builder

        def lower(build: Any, devices: list[Any]) -> Answer:
            lowered = call_builder(build, devices, keywords, self.target_config)
            Path(out).write_bytes(lowered.stablehlo)
            return {"devices": list(lowered.devices), "options": dict(lowered.options)}

        answer = self._built(module, function, lower)
        if os.environ.get("XLA_FLAGS") != self._xla_flags:
            _log(f"{module} sets XLA_FLAGS={os.environ.get('XLA_FLAGS')}")
        return answer

    def _built(self, module: str, function: str, use: Callable[[Any, list[Any]], Answer]) -> Answer:
        """What is made of a target's function, and what it read.

        The next request finds the process as a new one would be: the file runs again, and nothing
        that JAX traced is kept, which could depend on variables that have changed. Modules that the
        file imports stay, as their files are watched. `is_changed` tells of settings that stay too.
        """
        import jax

        jax.clear_caches()  # type: ignore[no-untyped-call]
        with tracking(self._seen):
            build = getattr(import_target(module), function)
        before = _settings()  # reads all variables, which the target doesn't
        with tracking(self._seen):
            answer = self._with_devices(build, use)
        inputs = inputs_of(self._seen).to_json()
        return {**answer, "inputs": inputs, "is_changed": _settings() != before}

    def _with_devices(self, build: Any, use: Callable[[Any, list[Any]], Answer]) -> Answer:
        """With memories; for a function that needs devices of JAX's own type, with those."""
        from slipstream.jaxhooks.target_device import NO_SUCH_MEMORY

        why = self._without
        if self._given is not self.devices:
            try:
                return use(build, self._given)
            except Exception as error:
                if NO_SUCH_MEMORY in str(error):
                    raise
                why = shorten(f"{type(error).__name__}: {error}", MOST_SAID, placeholder=" …")
        answer = use(build, self.devices)
        if why:
            _log(f"memory kinds are lost: {why}")
        return answer

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

    def compile(
        self,
        path: str,
        out: str,
        scheduled: str = "",
        sequences: str = "",
        fingerprint: str | None = None,
        **request: Any,
    ) -> Answer:
        from slipstream.compiler.worker.pallas_calls import with_kernel_work
        from slipstream.compiler.worker.xla import compile_program

        began = time.monotonic()
        content = Path(path).read_bytes()
        problem = ""
        if scheduled or sequences:
            from slipstream.jaxhooks.order_pass import OrderPass, registered

            asked = json.loads(Path(sequences).read_text(encoding="utf-8")) if sequences else {}
            with registered(OrderPass(asked, fingerprint)) as ours:
                compiled = compile_program(content, self.devices, **request)
            if scheduled:
                Path(scheduled).write_bytes(with_kernel_work(ours.scheduled or b""))
            if asked and not ours.is_set:
                problem = ours.problem or "XLA never called the pass"
        else:
            compiled = compile_program(content, self.devices, **request)
        Path(out).write_bytes(with_kernel_work(compiled.proto))
        return {
            "memory": dict(compiled.memory),
            "devices": compiled.devices,
            "seconds": time.monotonic() - began,
            "problem": problem,
        }


def _log(text: str) -> None:
    """In the format of XLA's log, so that it is kept with everything compiled from here."""
    print(f"W0101 00:00:00.000000 0 worker.py:0] {text}", file=sys.stderr)


def _settings() -> tuple[dict[str, str], dict[str, Any]]:
    """Settings of the process that a build function may change."""
    import jax

    return dict(os.environ), dict(jax.config.values)


def import_target(module: str) -> Any:
    """Import a file as a module, or a module by its dotted name."""
    if not module.endswith(".py"):
        _put_first(os.getcwd())
        return importlib.import_module(module)
    path = Path(module).resolve()
    _put_first(str(path.parent))
    sys.argv = [str(path)]
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = loaded
    spec.loader.exec_module(loaded)
    return loaded


def _put_first(folder: str) -> None:
    if sys.path[:1] != [folder]:
        sys.path.insert(0, folder)


if __name__ == "__main__":
    serve_stdin(Worker())
