"""Small recordings on disk, and servers of them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from builders import space
from slipstream.serve.server import Server
from slipstream.serve.session import ViewerSession

POLL_S = 0.05


def write_recording(path: Path, steps: int = 3, us: float = 20) -> Path:
    """A GPU that computes and copies; `us` is how long its kernels take."""
    built = space().versions(jax_version="0.10.2")
    compute = built.gpu().line("Stream #14(Compute)")
    copies = built.gpu().line("Stream #20(MemcpyD2H)")
    for step in range(steps):
        at = step * (2 * us + 10)
        compute.kernel("dot_1", at, us, "dot.1", correlation=2 * step + 1)
        compute.kernel("add_2", at + us, us, "add.2", correlation=2 * step + 2)
        copies.kernel("MemcpyD2H", at + 5, us, "copy-start.1", correlation=2 * step + 2)
        built.host().line("python").annotation(step, at, us)
    return built.write(path)


def first_object(output: Iterable[str]) -> str:
    """The lines up to the end of the first JSON object, or of the output."""
    lines = []
    for line in output:
        lines.append(line)
        if line == "}\n":
            break
    return "".join(lines)


@contextmanager
def serving(*paths: Path, watch: bool = False, host: str = "127.0.0.1") -> Iterator[Server]:
    """A server of recordings that are read; `watch` reads them again when they change."""
    session = ViewerSession([str(path) for path in paths])
    server = Server(session, host)
    server.start()
    try:
        session.first_read()
        watcher = threading.Thread(target=session.watch, args=(POLL_S,), daemon=True)
        if watch:
            watcher.start()
        yield server
        session.close()
        if watch:
            watcher.join()
    finally:
        server.close()
