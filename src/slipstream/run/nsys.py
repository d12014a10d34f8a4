"""`--nsys`: the profile run under `nsys profile`, whose report Slipstream reads itself.

JAX's profiler and nsys can't run at the same time, and nsys doesn't need it: XLA marks each launch
with NVTX. The job is ended, and not nsys, which writes its report once the job is gone.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from slipstream.errors import Missing
from slipstream.run.launcher import Job
from slipstream.run.run_dir import CACHE as CACHE_FOLDER
from slipstream.run.run_dir import (
    DONE,
    FAILED,
    STATUS,
    done_facts,
    mark_done,
    read_json,
    write_json,
)
from slipstream.sources.hlo.reader import read_program
from slipstream.writing import file_name

REPORT = "report.nsys-rep"
OPTIONS = (
    "--trace=cuda,nvtx", "--sample=none", "--cpuctxsw=none", "--cuda-graph-trace=node",
    "--force-overwrite=true",
)  # fmt: skip
"""without node tracing, a command buffer (CUDA graph) shows as one block, without its kernels"""
CACHE, EXPECT = "JAX_COMPILATION_CACHE_DIR", "JAX_COMPILATION_CACHE_EXPECT_PGLE"
PATIENCE_S = 20.0
"""between the signals that ask the job to end"""
LONGEST_REPORT_S = 600.0


def nsys() -> str:
    """The path of nsys; Missing if it is not on the PATH."""
    found = shutil.which("nsys")
    if found is None:
        raise Missing(
            "--nsys needs Nsight Systems, and there is no nsys on the PATH; install it, on Ubuntu "
            "with NVIDIA's repository: apt-get install nsight-systems-cli"
        )
    return found


def under_nsys(command: Sequence[str], phase: Path) -> tuple[str, ...]:
    """The job's command, recorded by nsys."""
    report = report_in(phase)
    report.parent.mkdir(parents=True, exist_ok=True)
    return (nsys(), "profile", *OPTIONS, f"--output={report}", *command)


def variables(folder: Path, base: Mapping[str, str]) -> dict[str, str]:
    """One compilation cache for all runs, so that what is profiled is what is compared."""
    ours = {CACHE: str(folder / CACHE_FOLDER), EXPECT: "true"}
    return {name: value for name, value in ours.items() if name not in base}


def report_in(phase: Path) -> Path:
    return phase / "profiles" / "before" / REPORT


def recording_of(phase: Path) -> Path:
    """The recording of a phase, whichever profiler made it."""
    report = report_in(phase)
    return report if report.exists() else report.parent


def end(job: Job, phase: Path) -> None:
    """End the job, wait for nsys, and add its report to the phase."""
    facts = done_facts(phase)
    process = (read_json(phase / STATUS) or {}).get("process")
    if facts is not None and process is not None:
        _end_process(job, int(process))
    job.stop()
    if facts is not None:
        _keep_report(phase, facts)


def _end_process(job: Job, process: int) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        if not _is_alive(process):
            break
        with suppress(ProcessLookupError):
            os.kill(process, number)
        _wait(lambda: not _is_alive(process) or job.poll() is not None, PATIENCE_S)
    _wait(lambda: job.poll() is not None, LONGEST_REPORT_S)


def _keep_report(phase: Path, facts: Mapping[str, Any]) -> None:
    report = report_in(phase)
    if not report.exists():
        (phase / DONE).unlink()
        write_json(phase / FAILED, {"why": f"nsys wrote no report; see {phase}/log.txt"})
        return
    programs = sorted((phase / "programs").iterdir())
    for program in programs:
        if program.name.endswith(".hlo.pb"):
            # A report holds no programs; its reader finds them beside it under XLA's own names.
            found = read_program(program)
            known = file_name(found.name)
            name = f"module_{found.program_id or 0:04d}.{known}.after_optimizations.hlo.pb"
            shutil.copy2(program, report.parent / name)
    facts = {**facts, "bytes": report.stat().st_size, "profiler": "nsys"}
    mark_done(phase, [*programs, *(f for f in report.parent.iterdir() if f.is_file())], facts)


def _is_alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def _wait(holds: Callable[[], bool], longest_s: float) -> None:
    end_s = time.monotonic() + longest_s
    while not holds() and time.monotonic() < end_s:
        time.sleep(0.05)
