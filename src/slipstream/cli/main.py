"""The `slipstream` command.  A command's file is imported when it is called: help is instant.

A profile that the command line names is read from the first moment on, by threads that need no
Python, while Python loads the command line and all that comes after reading.
"""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress
from typing import Any

from slipstream.errors import SlipstreamError

COMMANDS = {
    "summary": "slipstream.cli.summary",
    "ops": "slipstream.cli.ops",
    "programs": "slipstream.cli.programs",
    "overlap": "slipstream.cli.overlap",
    "collectives": "slipstream.cli.collectives",
    "slack": "slipstream.cli.slack",
    "gaps": "slipstream.cli.gaps",
    "roofline": "slipstream.cli.roofline",
    "memory": "slipstream.cli.memory",
    "hosts": "slipstream.cli.hosts",
    "diagnose": "slipstream.cli.diagnose",
    "diff": "slipstream.cli.diff",
    "network": "slipstream.cli.network",
    "serve": "slipstream.cli.serve",
    "report": "slipstream.cli.report",
    "costs": "slipstream.cli.costs",
    "compile": "slipstream.cli.compile",
    "predict": "slipstream.cli.predict",
    "simulate": "slipstream.cli.simulate",
    "machines": "slipstream.cli.machines",
    "export": "slipstream.cli.export",
    "query": "slipstream.cli.query",
    "flags": "slipstream.cli.flags",
    "doctor": "slipstream.cli.doctor",
    "run": "slipstream.cli.run",
    "tune": "slipstream.cli.tune",
}
"""Command or group of commands to the module that has it, under the same name."""


_READERS = (
    "summary", "ops", "programs", "export", "query",
    "overlap", "collectives", "slack", "gaps", "roofline", "memory", "hosts", "diff", "network",
    "diagnose", "report", "serve",
)  # fmt: skip
"""commands whose first argument is a profile"""


def __getattr__(name: str) -> Any:
    """`app` is the whole command line, built when somebody asks for it."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from slipstream.cli.app import build_app

    globals()["app"] = build_app()
    return globals()["app"]


def main() -> None:
    """Runs the command line and ends the process."""
    # A terminal that can't show `µ` gets `?`, not a traceback.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    # A command lives for a second or so and makes few cycles: collecting them is wasted time.
    gc.set_threshold(200_000)
    code = _run()
    for stream in (sys.stdout, sys.stderr):
        with suppress(BrokenPipeError, ValueError):
            stream.flush()
    # The system takes memory back at once; Python would give it back piece by piece.
    os._exit(code)


def _run() -> int:
    """The exit code; the only place where errors become one (see `errors`)."""
    called = sys.argv[1] if len(sys.argv) > 1 else ""
    try:
        if called in _READERS:
            # Nothing here multiplies matrices, and waking a thread for each core takes a while.
            os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
            _read_ahead(sys.argv[2:])
        from slipstream.cli.app import build_app

        build_app([called] if called in COMMANDS else COMMANDS)(prog_name="slipstream")
    except SlipstreamError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else 0 if done.code is None else 1
    return 0


def _read_ahead(arguments: list[str]) -> None:
    """Begin to read the file that the arguments name, if they name one and choose nothing in it."""
    path = arguments[0] if arguments else ""
    if os.path.isfile(path) and not any(a.startswith(("--run", "--dumps")) for a in arguments):
        from slipstream.sources.xplane.prefetch import walk_ahead

        walk_ahead(path)
        from slipstream.sources.load import read_ahead

        read_ahead(path)
