"""Answers of a worker process, and what comes instead of them."""

import pytest

from slipstream.compiler.worker.process import WorkerFailed, WorkerProcess

DIES = """
import os, signal, sys
sys.stdin.readline()
os.write(1, b'{"memory": {"peak')
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_worker_that_dies_in_the_middle_of_its_answer_has_died(tmp_path, monkeypatch):
    (tmp_path / "dies.py").write_text(DIES)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    process = WorkerProcess("", module="dies")
    with pytest.raises(WorkerFailed) as failed:
        process.ask("compile")
    process.close()
    assert failed.value.died and failed.value.answer["code"] == -9


def test_a_worker_that_died_before_a_request_can_be_closed():
    """The request stays in the pipe's buffer, and closing the pipe writes it again."""
    worker = WorkerProcess("", module="this_module_does_not_exist")
    worker._child.wait()
    with pytest.raises(WorkerFailed) as failed:
        worker.ask("start", topology="1x1x1")
    assert failed.value.died
    worker.close()
