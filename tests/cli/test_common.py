from __future__ import annotations

import io

import pytest

from slipstream.cli import common


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _loaded(monkeypatch, stderr: io.StringIO, seconds: float) -> str:
    now = iter([0.0, *[seconds] * 99])
    monkeypatch.setattr(common.time, "monotonic", lambda: next(now))
    monkeypatch.setattr("sys.stderr", stderr)
    monkeypatch.setenv("TERM", "xterm")
    with common.ProgressBar() as bar:
        bar.update(40_000_000, 100_000_000)
        bar.update(100_000_000, 100_000_000)
    return stderr.getvalue()


def test_a_long_load_shows_a_bar_on_a_terminal(monkeypatch):
    shown = _loaded(monkeypatch, _Terminal(), 3.0)
    assert "reading" in shown
    assert "100.0" in shown


@pytest.mark.parametrize(("stderr", "seconds"), [(_Terminal(), 1.0), (io.StringIO(), 3.0)])
def test_a_short_load_or_no_terminal_shows_none(monkeypatch, stderr, seconds):
    assert _loaded(monkeypatch, stderr, seconds) == ""
