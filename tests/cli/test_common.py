from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from slipstream.cli import common
from slipstream.cli.main import app


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


def link(folder: Path, name: str) -> str:
    (folder / name).symlink_to("/dev/stdout")
    return str(folder / name)


COMMANDS = {
    "report": ("report", "{recording}", "-o", "/dev/stdout"),
    "report as JSON": ("report", "{recording}", "-o", "/dev/fd/1", "--json"),
    "export": ("export", "{recording}", "-o", "/dev/stdout", "--format", "csv"),
    "export for Perfetto": ("export", "{recording}", "-o", "/dev/stdout", "--format", "perfetto"),
    "costs": ("costs", "extract", "{recording}", "-o", "{costs}"),
    "machines": ("machines", "calibrate", "{recording}", "--gpu", "H200", "-o", "{machine}"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_stdout_holds_nothing_but_the_output(name, data, tmp_path, capfd):
    """With `-o /dev/stdout`, what a command says goes to stderr."""
    places = {
        "recording": data / "single.xplane.pb.gz",
        "costs": link(tmp_path, "costs.pbtxt"),
        "machine": link(tmp_path, "machine.toml"),
    }
    app([word.format_map(places) for word in COMMANDS[name]], standalone_mode=False)
    found = capfd.readouterr()
    assert found.out.strip() and "wrote" not in found.out
    if "--json" in COMMANDS[name]:
        assert json.loads(found.err) and found.out.rstrip().endswith("</html>")
    else:
        assert "wrote" in found.err


def test_json_beside_another_pipe_stays_on_stdout(data, tmp_path, capfd):
    recording = str(data / "single.xplane.pb.gz")
    app(["report", recording, "-o", "/dev/null", "--json"], standalone_mode=False)
    assert json.loads(capfd.readouterr().out)
