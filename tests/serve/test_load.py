"""A few seconds of `benchmarks/serve_load.py`: many clients, no errors, bounded memory."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "serve_load.py"


def test_many_clients_get_answers_and_memory_stays() -> None:
    options = ["--events", "20000", "--clients", "10", "--minutes", "3", "--minute-s", "2"]
    command = [sys.executable, str(SCRIPT), *options, "--pause", "0.3", "--flat", "0.5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    *_, last = done.stdout.splitlines()
    assert re.match("0 errors; memory ", last), done.stdout
    rows = [line.split() for line in done.stdout.splitlines() if re.match(r" +\d+ ", line)]
    assert len(rows) == 3 and any(int(row[1]) > 0 for row in rows), done.stdout
