"""Combinations of a command as arms: every visit is a short run of the job, on its own devices.

    the command, filled in ─► launched, an agent inside ─► some steps timed ─► ended

The job runs as it is, with its own data and whatever it writes; `{folder}` is new for each run.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from slipstream.bench.timed_run import DIED, HUNG, MEMORY, TimedRunFailed, TimedRuns
from slipstream.compiler.closing import Closing
from slipstream.errors import Missing
from slipstream.plan.measure.arms import STEPS, WARM, Here, Keywords, Prepared, Visit
from slipstream.plan.search.launched import job_command
from slipstream.results.tuning import CRASH, HANG, NO_FIT
from slipstream.run.launcher import CantStart
from slipstream.tune.measure.ab_window import ArmFailed
from slipstream.writing import empty_folder, mark_folder

RUNS = "runs"
"""in the plan's folder: logs of runs that failed"""
_KINDS = {HUNG: HANG, MEMORY: NO_FIT, DIED: CRASH}
_DEVICES = """
import json, jax, jaxlib
devices = jax.local_devices()
memory = (devices[0].memory_stats() or {}).get("bytes_limit")
print(json.dumps(dict(platform=devices[0].platform, devices=len(devices), memory_bytes=memory,
                      kind=devices[0].device_kind, jaxlib=jaxlib.__version__)))
"""


class LaunchedArms(Closing):
    """The combinations of a command; the counterpart of `Arms`."""

    def __init__(
        self, command: tuple[str, ...], folder: Path, *, use_gpu: bool, timeout_s: float
    ) -> None:
        self._command = command
        self._folder = folder / RUNS
        self._timeout_s = timeout_s
        self._base = dict(os.environ) if use_gpu else {**os.environ, "JAX_PLATFORMS": "cpu"}
        self._here: Here | None = None
        self._keywords: dict[str, Keywords] = {}
        self._first: dict[str, Visit] = {}
        """visits of `prepare` that nobody has asked for yet"""
        self._count = 0
        empty_folder(self._folder)
        mark_folder(self._folder)

    @property
    def here(self) -> Here:
        if self._here is None:
            words = [sys.executable, "-c", _DEVICES]
            done = subprocess.run(words, env=self._base, capture_output=True, text=True)
            if done.returncode:
                last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
                raise Missing(f"JAX can't be started here ({last}); see: slipstream doctor")
            self._here = Here(**json.loads(done.stdout.splitlines()[-1]))
        return self._here

    def prepare(self, combinations: Mapping[str, Keywords]) -> dict[str, Prepared | ArmFailed]:
        """Run each combination once."""
        found: dict[str, Prepared | ArmFailed] = {}
        self._keywords |= combinations
        for name in combinations:
            try:
                self._first[name] = first = self._run(name, STEPS)
                found[name] = Prepared(None, 0.0, first)
            except ArmFailed as failed:
                found[name] = failed
        return found

    def visit(self, name: str, steps: int = STEPS) -> Visit:
        """Time some steps in a new run; ArmFailed if it can't be run."""
        return self._first.pop(name, None) or self._run(name, steps)

    def begin_anew(self) -> None:
        """Every run is a process of its own already."""

    def close(self) -> None:
        """Nothing runs between two visits."""

    def _run(self, name: str, steps: int) -> Visit:
        self._count += 1
        run = self._folder / f"{self._count:04}-{name}"
        with tempfile.TemporaryDirectory(prefix="slipstream-plan-") as made:
            command = job_command(self._command, self._keywords[name], Path(made))
            runs = TimedRuns(command, WARM + 1, steps, self._timeout_s, base=self._base)
            try:
                facts = runs.time(run, {})
            except TimedRunFailed as failed:
                raise ArmFailed(_KINDS[failed.kind], failed.why) from None
            except CantStart as error:
                raise ArmFailed(CRASH, str(error)) from None
        shutil.rmtree(run)
        return Visit((float(facts["step_s"]),), is_finite=True, peak_bytes=None)
