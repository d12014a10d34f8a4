"""What becomes of a compile in the background that fails."""

import logging
from types import SimpleNamespace

import pytest

from slipstream.experiment.prepare import BackgroundCompile
from slipstream.jaxhooks.shutdown import SHUTDOWN


@pytest.mark.parametrize(("is_ending", "level"), [(False, logging.WARNING), (True, logging.INFO)])
def test_a_job_that_ends_in_the_middle_shows_no_traceback(caplog, monkeypatch, is_ending, level):
    def prepare(*_: object) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    left: list[str] = []
    monkeypatch.setattr(SHUTDOWN, "is_set", lambda: is_ending)
    work = BackgroundCompile(prepare, SimpleNamespace(name="jit_step"), None, None)
    with caplog.at_level(logging.INFO):
        work.begin(SimpleNamespace(leave=left.append))
        work.join(60)
    assert left == ["RuntimeError: can't create new thread at interpreter shutdown"]
    assert [one.levelno for one in caplog.records if "was not recompiled" in one.message] == [level]
