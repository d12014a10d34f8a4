"""The client of a worker process: requests, answers, and the log that XLA writes meanwhile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

VLOG = "gpu_hlo_schedule=1,autotuner_pass=1,config_assigner_pass=1"
"""makes XLA log which estimator its scheduler uses, and whether it used autotuning results"""
TPU_VARIABLES = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5p-8",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}
"""lets libtpu compile in any number of processes without a TPU: it neither looks for one in Cloud's
metadata (whatever type it assumes, the topology decides) nor locks it"""
_SOURCES = str(Path(__file__).resolve().parents[3])


class WorkerFailed(Exception):
    """An error from a worker; `died` if the process has ended."""

    def __init__(self, answer: dict[str, Any], log: str, *, died: bool = False) -> None:
        super().__init__(answer.get("line", ""))
        self.answer = answer
        self.log = log
        self.died = died


class WorkerProcess:
    """One worker process."""

    def __init__(
        self,
        xla_flags: str,
        *,
        use_gpu: bool = False,
        module: str = "slipstream.compiler.worker.worker",
    ) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115
        self._read = 0
        self._is_killed = False
        self._child = subprocess.Popen(
            # -P: files in the current folder must not shadow packages.
            [sys.executable, "-P", "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._file,
            env=_environment(xla_flags, use_gpu),
            text=True,
        )

    @property
    def is_alive(self) -> bool:
        return not self._is_killed and self._child.poll() is None

    def ask(self, do: str, **request: Any) -> tuple[dict[str, Any], str]:
        """Send a request; returns the answer and what was logged, or raises WorkerFailed."""
        assert self._child.stdin is not None and self._child.stdout is not None
        line = ""
        answer: dict[str, Any]
        try:
            self._child.stdin.write(json.dumps({"do": do, **request}) + "\n")
            self._child.stdin.flush()
            line = self._child.stdout.readline()
        except BrokenPipeError:
            pass
        if not line.endswith("\n"):
            # Nothing, or an answer that the process could not finish.
            code = self._child.wait()
            answer = {"error": "died", "code": code, "is_aborted": self._is_killed}
            raise WorkerFailed(answer, self._log(), died=True)
        answer = json.loads(line)
        log = self._log()
        if "error" in answer:
            raise WorkerFailed(answer, log)
        return answer, log

    def _log(self) -> str:
        self._file.seek(self._read)
        data = self._file.read()
        self._read += len(data)
        return data.decode("utf-8", "replace")

    def kill(self) -> None:
        """Kill the process; a thread that waits for its answer gets WorkerFailed."""
        self._is_killed = True
        self._child.kill()

    def close(self) -> None:
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                # What could not be written to a process that died is written once more here.
                with suppress(BrokenPipeError):
                    pipe.close()
        try:
            self._child.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._file.close()


def _environment(xla_flags: str, use_gpu: bool) -> dict[str, str]:
    theirs = os.environ.get("XLA_FLAGS", "")
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return {
        **os.environ,
        # Without a GPU, the plugin's own checks fail unless the CPU is selected.
        "JAX_PLATFORMS": "cuda,cpu" if use_gpu else "cpu",
        **TPU_VARIABLES,
        "XLA_FLAGS": f"{theirs} {xla_flags}".strip(),
        "TF_CPP_MIN_LOG_LEVEL": "0",
        "TF_CPP_VMODULE": VLOG,
        "PYTHONPATH": os.pathsep.join([*paths, _SOURCES]),
    }
