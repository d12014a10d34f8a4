"""Local copies: made once for each version, and deleted when there are too many."""

import os
import time
from pathlib import Path

import pytest

from s3_server import S3Server
from slipstream import BadInput
from slipstream.remote import cache
from slipstream.remote.cache import fetched
from slipstream.remote.paths import RemotePath, any_path, local_copy


def remote(url: str) -> RemotePath:
    found = any_path(url)
    assert isinstance(found, RemotePath)
    return found


def test_a_version_is_fetched_once(s3: S3Server) -> None:
    url = s3.put("a/x.txt", b"first")
    copies = [fetched(remote(url)) for _ in range(3)]
    assert len(set(copies)) == 1 and copies[0].read_bytes() == b"first"
    assert copies[0].name == "x.txt" and s3.bytes_of("x.txt") == 5
    s3.put("a/x.txt", b"other")
    assert fetched(remote(url)).read_bytes() == b"other"
    assert copies[0].read_bytes() == b"first", "whoever has it open keeps what it was"
    assert copies[0].parents[1].stat().st_mode & 0o077 == 0


def test_a_folder_is_copied_with_all_below_it(s3: S3Server, tmp_path: Path) -> None:
    s3.put("f/a", b"1")
    s3.put("f/b/c", b"2")
    copy = local_copy(remote("s3://bucket/f"))
    assert {p.relative_to(copy).as_posix() for p in copy.rglob("*")} == {"a", "b", "b/c"}
    assert local_copy(remote("s3://bucket/f")) == copy
    assert local_copy(tmp_path) == tmp_path


def test_the_oldest_copies_are_deleted(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.LIMIT_VARIABLE, "250")
    copies = []
    for number in range(4):
        copies.append(fetched(remote(s3.put(f"k{number}", bytes(100)))))
        os.utime(copies[-1].parent, (time.time() - 100 + number,) * 2)
    assert [copy.exists() for copy in copies] == [False, False, True, True]
    monkeypatch.setenv(cache.LIMIT_VARIABLE, "much")
    with pytest.raises(BadInput, match="is 'much'; expected a number of bytes"):
        fetched(remote(s3.put("k5", b"x")))


def test_progress_is_told(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, int, int]] = []
    monkeypatch.setattr(cache, "report", [lambda *facts: told.append(facts)])
    url = s3.put("big", bytes(300_000))
    fetched(remote(url))
    assert told[-1] == (url, 300_000, 300_000)


def test_a_download_that_ends_early_is_no_copy(s3: S3Server, monkeypatch) -> None:
    path = remote(s3.put("x", b"whole"))
    path.__dict__["_known"] = {**path.info(), "size": 7}
    with pytest.raises(BadInput, match="has 7 bytes, and 5 arrived"):
        fetched(path)
    assert not [file for file in cache._folder().rglob("*") if file.is_file()]
