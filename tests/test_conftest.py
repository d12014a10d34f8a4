"""The suite's own rules: who gets another try, what may be skipped, which files start first."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import conftest

FAILS_ONCE = """
import pytest

class RaceLost(Exception):
    pass

tries = []

@pytest.mark.retry{reason}
def test_it():
    tries.append(1)
    if len(tries) < 2:
        raise {error}("again")
"""
SKIP = """
import pytest

@pytest.mark.parametrize("reason", ["not installed: keras", "no Slurm: not here", "no time"])
def test_it(reason):
    pytest.skip(reason)
"""


def retried(folder: Path, reason: str, error: str = "RaceLost") -> tuple[int, str]:
    return outcome(folder, FAILS_ONCE.format(reason=reason, error=error))


def outcome(folder: Path, test: str, **variables: str) -> tuple[int, str]:
    """The exit code and output of a suite with our conftest and one test."""
    tests = folder / "tests"
    tests.mkdir()
    shutil.copy(Path(__file__).parent / "conftest.py", tests)
    (tests / "test_it.py").write_text(test)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tests]
    # It finds there what it imports.
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent), **variables}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_a_test_that_names_its_race_gets_another_try(tmp_path):
    code, said = retried(tmp_path, "('the port can be taken')")
    assert code == 0 and "1 passed, 1 rerun" in said


def test_another_failure_of_such_a_test_counts(tmp_path):
    code, said = retried(tmp_path, "('the port can be taken')", "AssertionError")
    assert code == 1 and "1 failed" in said and "rerun" not in said


def test_a_retry_without_a_reason_is_refused(tmp_path):
    code, said = retried(tmp_path, "")
    assert code == 4 and "write why it needs another try" in said


def test_continuous_integration_accepts_few_skips(tmp_path):
    code, said = outcome(tmp_path, SKIP, CI="true", ALL_INSTALLED="")
    assert code == 1 and "1 failed, 2 skipped" in said
    assert "no test may be skipped when CI is set: Skipped: no time" in said


def test_no_library_may_be_missing_where_all_are_installed(tmp_path):
    code, said = outcome(tmp_path, SKIP, CI="", ALL_INSTALLED="1")
    assert code == 1 and "2 failed, 1 skipped" in said
    assert "no test may be skipped when ALL_INSTALLED is set: Skipped: not installed: keras" in said


def test_the_longest_files_are_there():
    tests = Path(__file__).parent
    assert [name for name in conftest.LONGEST if not (tests / name).is_file()] == []
