"""The cache: whole entries only, bounded, and safe for several processes."""

import json
import os
import subprocess
import sys

import pytest

from slipstream.compiler import cache
from slipstream.errors import BadInput


@pytest.fixture(autouse=True)
def empty(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "slipstream" / "compile"


def test_what_is_kept_is_found():
    kept = cache.keep("a" * 40, {"seconds": 1.5}, b"program", "log")
    found = cache.find("a" * 40)
    assert found == kept
    assert (found["seconds"], found["proto"].read_bytes()) == (1.5, b"program")
    assert found["log"].read_text() == "log"
    assert cache.find("b" * 40) is None


@pytest.mark.parametrize("damage", ["program is gone", "no JSON", "cut short", "deep", "names"])
def test_an_entry_that_is_not_whole_is_none(damage):
    kept = cache.keep("a" * 40, {"seconds": 1.5}, b"program", "log")
    file = cache.cache_folder() / f"{'a' * 40}.json"
    if damage == "program is gone":
        kept["proto"].unlink()
    elif damage == "no JSON":
        file.unlink()
    elif damage == "deep":
        file.write_text('{"a":' * 100_000)
    elif damage == "names":
        file.write_text(json.dumps({"proto": "x" * 5000, "log": "\0"}))
    else:
        file.write_text(file.read_text()[:10])
    assert cache.find("a" * 40) is None


def test_the_least_recently_used_go_first(monkeypatch):
    monkeypatch.setenv(cache.LIMIT_VARIABLE, "5000")
    for age, key in ((900, "a"), (600, "b"), (300, "c")):
        entry = cache.keep(key * 40, {}, key.encode() * 2000, key)
        files = [cache.cache_folder() / f"{key * 40}.json", entry["proto"], entry["log"]]
        before = os.stat(files[0]).st_mtime - age
        for file in files:
            os.utime(file, (before, before))
    cache.keep("d" * 40, {}, b"d" * 2000, "d")
    found = [key for key in "abcd" if cache.find(key * 40) is not None]
    assert found == ["c", "d"]


def test_a_limit_that_is_no_number(monkeypatch):
    monkeypatch.setenv(cache.LIMIT_VARIABLE, "2GB")
    with pytest.raises(BadInput, match="SLIPSTREAM_CACHE_BYTES is '2GB'; expected a number"):
        cache.keep("a" * 40, {}, b"", "")


def test_a_cache_that_can_not_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(BadInput, match="export XDG_CACHE_HOME"):
        cache.keep("a" * 40, {}, b"", "")


def test_processes_that_write_one_entry_at_once():
    """Readers see one of the writers' entries, whole, at any time."""
    script = (
        "import sys; from slipstream.compiler import cache\n"
        "who = sys.argv[1]\n"
        "for turn in range(40):\n"
        "    cache.keep('a' * 40, {'who': who}, who.encode() * 50_000, who)\n"
        "    found = cache.find('a' * 40)\n"
        "    assert found is not None\n"
        "    assert set(found['proto'].read_text()) == {found['who']}, found\n"
    )
    writers = [
        subprocess.Popen([sys.executable, "-c", script, who], stderr=subprocess.PIPE, text=True)
        for who in "xyz"
    ]
    for writer in writers:
        _, errors = writer.communicate()
        assert writer.returncode == 0, errors


def test_parts_of_a_key_do_not_run_together():
    assert cache.digest("ab", "c") != cache.digest("a", "bc")
    assert cache.digest({"a": 1, "b": 2}) == cache.digest({"b": 2, "a": 1})
