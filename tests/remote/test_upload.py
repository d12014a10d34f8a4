"""URLs that can't be written to: refused before the work, and nothing is lost after it."""

import re
from pathlib import Path

import pytest

from s3_server import S3Server
from slipstream import BadInput, Missing
from slipstream.remote.upload import check_writable
from slipstream.writing import atomic_write


def test_what_can_be_written_passes_and_nothing_is_written(s3: S3Server, tmp_path: Path) -> None:
    for place in ("s3://bucket/a/b.html", "memory://a/b", f"file://{tmp_path}/x", "plain.html"):
        check_writable(place)
    assert s3.keys() == []


def test_a_bucket_that_is_not_there_is_refused_and_not_made(s3: S3Server, tmp_path: Path) -> None:
    expected = "there is no bucket nobucket, or these credentials can't see it"
    with pytest.raises(BadInput, match=expected):
        check_writable("s3://nobucket/x")
    with (
        pytest.raises(BadInput, match=expected) as caught,
        atomic_write("s3://nobucket/x.html") as temporary,
    ):
        temporary.write_text("minutes of work")
    kept = re.search(r"what was written is in (\S+)", str(caught.value))
    assert kept is not None and Path(kept[1]).read_text() == "minutes of work"
    Path(kept[1]).unlink()
    Path(kept[1]).parent.rmdir()
    assert not any(path.startswith("/nobucket") and how == "PUT" and not path.count("/") > 1
                   for how, path, _ in s3.sent)  # fmt: skip


def test_a_web_server_is_only_read_from() -> None:
    with pytest.raises(BadInput, match="http://127.0.0.1/x can only be read"):
        check_writable("http://127.0.0.1/x")


def test_without_credentials_it_says_how_to_sign_in(s3: S3Server, monkeypatch, tmp_path) -> None:
    from s3fs import S3FileSystem

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    S3FileSystem.clear_instance_cache()
    with pytest.raises(Missing, match=r"no valid credentials .*; sign in with: aws configure"):
        check_writable("s3://bucket/x")


def test_a_server_that_is_gone_is_named(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    from botocore.exceptions import EndpointConnectionError

    from slipstream.remote.systems import reaching

    with (
        pytest.raises(BadInput, match=r"s3://bucket/x can't be reached \(Could not connect"),
        reaching("s3://bucket/x"),
    ):
        raise EndpointConnectionError(endpoint_url="http://127.0.0.1:1")
    with (
        pytest.raises(BadInput, match=r"no permission \(Access Denied\); ask the bucket's owner"),
        reaching("s3://bucket/x"),
    ):
        raise PermissionError("Access Denied")
    with pytest.raises(FileNotFoundError), reaching("s3://bucket/x"):
        raise FileNotFoundError
