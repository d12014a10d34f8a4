"""A server on this machine that speaks S3, and counts the bytes it sends."""

import threading
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

BUCKET = "bucket"


@dataclass
class S3Server:
    url: str
    sent: list[tuple[str, str, int]] = field(default_factory=list)
    """of each answer: method, path, and bytes of its body"""

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def bytes_of(self, key: str) -> int:
        """Bytes sent of one object."""
        return sum(n for how, path, n in self.sent if how == "GET" and path.endswith(key))

    def put(self, key: str, content: bytes | Path) -> str:
        data = content.read_bytes() if isinstance(content, Path) else content
        _system().pipe_file(f"{BUCKET}/{key}", data)
        return f"s3://{BUCKET}/{key}"

    def get(self, key: str) -> bytes:
        _system().invalidate_cache()
        return bytes(_system().cat_file(f"{BUCKET}/{key}"))

    def keys(self, prefix: str = "") -> list[str]:
        _system().invalidate_cache()
        found = _system().find(f"{BUCKET}/{prefix}")
        return sorted(str(key).removeprefix(f"{BUCKET}/") for key in found)


def _system() -> Any:
    import fsspec

    return fsspec.filesystem("s3")


@pytest.fixture(scope="session")
def s3_process() -> Generator[S3Server]:
    """One server for all tests of a worker."""
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    app = DomainDispatcherApplication(create_backend_app)
    server = S3Server("")

    def counted(environ: dict[str, Any], start: Any) -> Iterator[bytes]:
        body: Iterable[bytes] = app(environ, start)
        sent = 0
        for piece in body:
            sent += len(piece)
            yield piece
        server.sent.append((environ["REQUEST_METHOD"], environ["PATH_INFO"], sent))

    made = make_server("127.0.0.1", 0, counted, threaded=True)
    server.url = f"http://127.0.0.1:{made.server_port}"
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    yield server
    made.shutdown()
    thread.join()


@pytest.fixture
def s3(
    s3_process: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Generator[S3Server]:
    """An empty bucket, and a cache of its own."""
    from s3fs import S3FileSystem

    for name, value in s3_process.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "own-cache"))
    S3FileSystem.clear_instance_cache()
    system = S3FileSystem()
    if system.exists(BUCKET):
        system.rm(BUCKET, recursive=True)
    system.mkdir(BUCKET)
    s3_process.sent.clear()
    yield s3_process
    S3FileSystem.clear_instance_cache()
