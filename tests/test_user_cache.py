"""Where caches are: never in a folder that depends on where a command was started."""

import os
from pathlib import Path

import pytest

from slipstream.compiler.cache import cache_folder
from slipstream.errors import BadInput
from slipstream.native.code_cache import _folders
from slipstream.user_cache import user_cache


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_an_absolute_folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert user_cache("slipstream") == "/somewhere/slipstream"


@pytest.mark.parametrize("relative", ["", "cache", "./cache", "../cache"])
def test_a_relative_folder_is_ignored(home: Path, monkeypatch, relative: str) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", relative)
    assert user_cache() == str(home / ".cache")
    assert cache_folder() == home / ".cache" / "slipstream" / "compile"
    assert all(os.path.isabs(folder.path) for folder in _folders())


def test_no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert user_cache() is None
    with pytest.raises(BadInput, match="no home folder"):
        cache_folder()
