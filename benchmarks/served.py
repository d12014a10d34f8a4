"""`slipstream serve` as a process of its own, for scripts that use it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# A script in a shell's background ignores Ctrl-C, and so would what it starts.
SERVE = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from slipstream.cli.main import main
sys.argv[1:1] = ["serve"]
main()
"""


@contextmanager
def served(path: Path) -> Iterator[tuple[subprocess.Popen[str], str, float]]:
    """(process, address, when it began) of a viewer."""
    began = time.perf_counter()
    command = [sys.executable, "-c", SERVE, str(path), "--no-open", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    text = ""
    for line in process.stdout:
        text += line
        if line.startswith("}"):
            break
    try:
        yield process, json.loads(text)["url"], began
    finally:
        process.send_signal(signal.SIGINT)
        if process.wait(20) != 0:
            sys.exit("slipstream serve did not end cleanly")
