"""The `slipstream` command.

A command's module is imported only when that command is called. Where the first argument is a
profile, native threads start to read it at once, while Python imports the rest.
"""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress
from typing import Any, NamedTuple

from slipstream.errors import SlipstreamError

TAGLINE = "Makes JAX programs on GPUs run as fast as their hardware allows, and proves it."

START, READ, NO_GPU, SETTINGS, OTHER = (
    "Start here", "Read a profile", "Without a GPU", "Settings", "Other tools",
)  # fmt: skip
"""groups of commands in the help, in order"""


class Command(NamedTuple):
    """Where a command, or a group of commands, is found: `module` has it under its own name."""

    group: str
    reads_profile: bool = False
    """its first argument is a profile, which is read while the rest is still being imported"""
    module: str | None = None
    """file of its chapter; by default, the command's name"""

    def module_of(self, name: str) -> str:
        """The command's module in `slipstream.cli`."""
        return f"{'profiles.' if self.reads_profile else ''}{self.module or name}"


COMMANDS = {
    "run": Command(START),
    "summary": Command(START, reads_profile=True),
    "diagnose": Command(START, reads_profile=True),
    "predict": Command(START),
    "plan": Command(START),
    "ops": Command(READ, reads_profile=True),
    "overlap": Command(READ, reads_profile=True, module="analyses"),
    "collectives": Command(READ, reads_profile=True, module="analyses"),
    "slack": Command(READ, reads_profile=True, module="analyses"),
    "gaps": Command(READ, reads_profile=True, module="analyses"),
    "roofline": Command(READ, reads_profile=True, module="analyses"),
    "memory": Command(READ, reads_profile=True, module="analyses"),
    "network": Command(READ, reads_profile=True, module="analyses"),
    "hosts": Command(READ, reads_profile=True, module="analyses"),
    "programs": Command(READ, reads_profile=True),
    "diff": Command(READ, reads_profile=True),
    "report": Command(READ, reads_profile=True),
    "serve": Command(READ, reads_profile=True),
    "compile": Command(NO_GPU),
    "simulate": Command(NO_GPU),
    "schedule": Command(NO_GPU),
    "machines": Command(NO_GPU),
    "tune": Command(SETTINGS),
    "flags": Command(SETTINGS),
    "costs": Command(SETTINGS),
    "doctor": Command(SETTINGS),
    "export": Command(OTHER, reads_profile=True),
    "query": Command(OTHER, reads_profile=True),
    "mcp": Command(OTHER),
}
"""every command, in the order of the help"""


def __getattr__(name: str) -> Any:
    """`app` is the whole command line, built on first use."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from slipstream.cli.app import build_app

    globals()["app"] = build_app()
    return globals()["app"]


def main() -> None:
    """Run the command line and end the process."""
    # A terminal that can't show `µ` gets `?`, not a traceback.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    # A command runs for a second or so and creates few reference cycles.
    gc.set_threshold(200_000)
    code = _run()
    for stream in (sys.stdout, sys.stderr):
        with suppress(BrokenPipeError, ValueError):
            stream.flush()
    # The system frees all memory at once; Python would free it object by object.
    os._exit(code)


def _run() -> int:
    """Run the command and return its exit code; only here do errors become one (see `errors`)."""
    called = sys.argv[1] if len(sys.argv) > 1 else ""
    try:
        if called in COMMANDS and COMMANDS[called].reads_profile:
            # No command multiplies matrices, and OpenBLAS takes a while to start its threads.
            os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
            from slipstream.sources.mapped_file import survive_shrinking

            survive_shrinking()
            _prefetch(sys.argv[2:])
        from slipstream.cli.app import build_app

        build_app([called] if called in COMMANDS else COMMANDS)(prog_name="slipstream")
    except SlipstreamError as error:
        from slipstream.outputs.formatting import printable_lines

        print(printable_lines(f"error: {error}"), file=sys.stderr)
        return error.exit_code
    except OSError as error:
        # A file that a command came to without its reader: the system says which, and why.
        from slipstream.outputs.formatting import printable_lines

        if error.filename is None:
            raise
        reason = f"can't access {error.filename}: {error.strerror}; check its name and rights"
        print(printable_lines(f"error: {reason}"), file=sys.stderr)
        return SlipstreamError.exit_code
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else 0 if done.code is None else 1
    return 0


def _prefetch(arguments: list[str]) -> None:
    """Start to read the file that the arguments name, unless they select a part of it."""
    path = arguments[0] if arguments else ""
    if os.path.isfile(path) and not any(a.startswith(("--run", "--dumps")) for a in arguments):
        from slipstream.sources.prefetch import prefetch

        prefetch(path)
