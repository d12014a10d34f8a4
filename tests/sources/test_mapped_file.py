"""Recordings that are cut short, written to or replaced while they are read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from serve.recordings import write_recording
from slipstream.errors import BadInput
from slipstream.sources import load as load_module
from slipstream.sources.load import load
from slipstream.sources.mapped_file import file_stamp, latest, map_file, raise_if_changed

# A file of its own pages: what is read of it ends behind its new end.
READ = """
import os, sys
from pathlib import Path
import numpy as np
from slipstream.sources.files import open_bytes
from slipstream.sources.mapped_file import survive_shrinking
path = Path(sys.argv[1])
if sys.argv[2] == "survive":
    survive_shrinking()
path.write_bytes(bytes([1]) * 50_000_000)
data = open_bytes(path)
os.truncate(path, 1_000_000)
print(int(data.sum()), int(data[-100:].sum()))
"""
# The reader's own threads meet the end, in native code.
LOAD = """
import os, sys
from slipstream.errors import BadInput
from slipstream.sources import load as load_module
from slipstream.sources.mapped_file import survive_shrinking
survive_shrinking()
path = sys.argv[1]
opened = load_module.open_bytes

def open_and_cut(*arguments):
    data = opened(*arguments)
    os.truncate(path, 100_000)
    return data

load_module.open_bytes = open_and_cut
try:
    load_module.load(path)
except BadInput as error:
    print(error)
"""


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is done about it")
def test_the_end_of_a_file_that_was_cut_short_is_zeros(tmp_path: Path) -> None:
    done = run(READ, str(tmp_path / "file"), "survive")
    assert (done.returncode, done.stdout) == (0, "1000000 0\n"), done.stderr
    assert run(READ, str(tmp_path / "file"), "die").returncode < 0


def test_a_recording_that_is_cut_short_is_an_error(tmp_path: Path) -> None:
    path = write_recording(tmp_path / "host.xplane.pb", steps=20_000)
    assert path.stat().st_size > 1_000_000
    done = run(LOAD, str(path))
    assert done.returncode == 0, done.stderr
    assert f"{path} changed while it was read (from " in done.stdout
    assert "to 100,000 bytes); is it still being written?" in done.stdout


@pytest.mark.parametrize(("how", "is_error"), [("grow", True), ("touch", True), ("replace", False)])
def test_a_recording_that_changes_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, is_error: bool
) -> None:
    path = write_recording(tmp_path / "host.xplane.pb", steps=2)
    other = write_recording(tmp_path / "other.xplane.pb", steps=3)
    read = load_module._read

    def read_and_change(file: Path, *arguments: object) -> object:
        found = read(file, *arguments)
        if how == "grow":
            with path.open("ab") as end:
                end.write(b"\0")
        elif how == "touch":
            os.utime(path, ns=(1, 1))
        else:
            other.replace(path)
        return found

    monkeypatch.setattr(load_module, "_read", read_and_change)
    if is_error:
        with pytest.raises(BadInput, match="host.xplane.pb changed while it was read"):
            load(path)
    else:
        assert len(load(path).events) == 6


def test_only_the_file_in_question_counts(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x")
    before, since = file_stamp(path), latest()
    with path.open("rb") as file:
        mapped = map_file(file.fileno(), path)
    raise_if_changed(path, before, since)
    mapped.is_shorter = True
    raise_if_changed(tmp_path / "other", before, since)
    raise_if_changed(path, before, mapped.number)
    with pytest.raises(BadInput, match="changed while it was read"):
        raise_if_changed(tmp_path / "." / "file", before, since)
