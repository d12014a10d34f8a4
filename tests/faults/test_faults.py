"""Files survive faults while they are written (docs/reliability.md); `run.py` says how."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "slipstream"


def injected(*more: str) -> subprocess.CompletedProcess[str]:
    # In a process of its own: this one may have threads, and must not fork.
    command = [sys.executable, str(Path(__file__).with_name("run.py")), *more]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_every_file_is_the_old_one_or_the_new_one() -> None:
    done = injected()
    assert done.returncode == 0, done.stdout + done.stderr
    total, wrong = re.findall(r"([\d,]+) cases, (\d+) wrong", done.stdout)[0]
    assert (int(total.replace(",", "")) > 500, wrong) == (True, "0")


BREAKS = """
import os, sys
from contextlib import contextmanager
import slipstream.writing as writing
@contextmanager
def in_place(path, *, is_private=False):
    yield writing.Path(path)
writing.atomic_write = in_place
sys.argv = ["run.py", "a report"]
sys.path.insert(0, {folder!r})
import run
sys.exit(run.main())
"""


def test_the_harness_finds_a_file_that_is_written_in_place() -> None:
    script = BREAKS.format(folder=str(Path(__file__).parent))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "a report, kill -9: " in done.stdout
    assert "neither the old one nor the new one" in done.stdout


def test_no_duration_comes_from_a_clock_that_can_be_set() -> None:
    """`time.time` jumps when a clock is set; `time.monotonic` and `perf_counter` don't.

    The date in a manifest of costs, of a recording or of a measurement is no duration, nor are the
    times that trackers show or that files have.
    """
    found = [
        f"{file.relative_to(SOURCE)}: {line.strip()}"
        for file in sorted(SOURCE.rglob("*.py"))
        for line in file.read_text().splitlines()
        if re.search(
            r"\btime\.time(_ns)?\(|\b(now|utcnow|today)\(|\bdatetime_(start|complete)", line
        )
    ]
    assert found == [
        'costs/extract.py: "date": datetime.now(UTC).isoformat(timespec="seconds"),',
        'fleet/fleet.py: "date": datetime.now(UTC).isoformat(timespec="seconds"),',
        'plan/measure/measure.py: now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")',
        "plan/measure/measuring.py: return datetime.now(UTC).date().isoformat()",
        "run/agent/agent.py: began = time.time()",
        "run/trackers/event_file.py: now = time.time()",
        "run/trackers/mlflow.py: now_ms = int(time.time() * 1000)",
    ]
