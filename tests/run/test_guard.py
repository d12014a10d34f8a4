"""A job whose launcher's rank is killed: ended with it where it has a guard, and only then."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from run_jobs import is_alive, wait_until, wait_while_alive

STANDS_FOR_A_JOB = """
import subprocess, sys, time
from slipstream.run.guard import watchdog
job = subprocess.Popen(["sh", "-c", "sleep 60 & wait"], process_group=0)
with watchdog(job.pid):
    print(job.pid, flush=True)
    sys.stdin.readline()
print("out of the block", flush=True)
time.sleep(60)
"""


@pytest.fixture
def guarding():
    words = [sys.executable, "-c", STANDS_FOR_A_JOB]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) as process:
        process.job = int(process.stdout.readline())
        try:
            yield process
        finally:
            process.kill()
            if is_alive(process.job):
                os.killpg(process.job, signal.SIGKILL)


def test_who_is_killed_takes_the_whole_group_along(guarding):
    children = Path(f"/proc/{guarding.job}/task/{guarding.job}/children")
    wait_until(lambda: bool(children.read_text()))
    (child,) = map(int, children.read_text().split())
    guarding.kill()
    wait_while_alive(guarding.job)
    wait_while_alive(child)


def test_after_the_block_the_group_is_on_its_own(guarding):
    guarding.stdin.write("\n")
    guarding.stdin.flush()
    assert guarding.stdout.readline() == "out of the block\n"
    # The guard was waited for: nobody is left who could end the job.
    guarding.kill()
    guarding.wait()
    assert is_alive(guarding.job)
