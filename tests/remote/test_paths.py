"""Paths in buckets: names, listings and ranges, on memory:// and on a server that speaks S3."""

import os
import sys
import threading
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import fsspec
import pytest

from archive_builder import SMALL, write_archive
from nsys_builder import export_of, write_dumps
from recorded import protos
from s3_server import S3Server
from slipstream import BadInput, Missing, load
from slipstream.reading import open_ranges, read_input
from slipstream.remote.paths import RemotePath, any_path, is_remote
from slipstream.writing import atomic_write

DATA = Path(__file__).parents[1] / "data"
FILES = {
    "logs/plugins/profile/2024_01/a.xplane.pb": b"one",
    "logs/plugins/profile/2024_02/a.xplane.pb": b"two",
    "logs/notes.txt": b"notes",
}


@pytest.fixture(params=["memory", "s3"])
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch) -> RemotePath:
    """A bucket with some files."""
    if request.param == "memory":
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "own-cache"))
        system = fsspec.filesystem("memory")
        system.store.clear()
        system.pseudo_dirs[:] = [""]
        system.pipe({f"/bucket/{name}": data for name, data in FILES.items()})
    else:
        server = request.getfixturevalue("s3")
        for name, data in FILES.items():
            server.put(name, data)
    found = any_path(f"{request.param}://bucket")
    assert isinstance(found, RemotePath)
    return found


def test_a_url_is_a_path_whose_text_is_the_url(root: RemotePath) -> None:
    place = root / "logs" / "notes.txt"
    assert str(place) == f"{root}/logs/notes.txt" and f"{place}" == str(place)
    assert (place.name, place.suffix, place.stem) == ("notes.txt", ".txt", "notes")
    assert place.parent == root / "logs" and isinstance(place.parent, RemotePath)
    assert str(place.with_name("b.pb")) == f"{root}/logs/b.pb"
    assert place.relative_to(root).as_posix() == "logs/notes.txt"
    assert place.absolute() is place and place.resolve() is place
    assert {place, root / "logs/notes.txt"} == {place}


def test_what_is_there_is_told_without_fetching_it(root: RemotePath) -> None:
    logs = root / "logs"
    assert logs.is_dir() and not logs.is_file() and logs.exists()
    assert (logs / "notes.txt").is_file() and not (logs / "nothing").exists()
    assert (logs / "notes.txt").stat().st_size == 5
    assert sorted(place.name for place in logs.iterdir()) == ["notes.txt", "plugins"]
    runs = sorted(place.name for place in root.glob("**/plugins/profile/*"))
    assert runs == ["2024_01", "2024_02"]
    assert [str(f) for f in logs.rglob("*.txt")] == [f"{logs}/notes.txt"]
    assert [f.name for f in logs.glob("*.txt")] == ["notes.txt"]
    assert list(logs.glob("*.pb")) == []
    assert [f.name for f in logs.glob("plugins/pro*/*")] == ["2024_01", "2024_02"]
    assert len(root.files()) == 3


def test_it_is_read_like_a_file(root: RemotePath) -> None:
    place = root / "logs/notes.txt"
    assert place.read_text() == "notes" and place.read_bytes() == b"notes"
    with open(place, "rb") as file:
        assert file.read() == b"notes"
    assert read_input(str(place), "text") == b"notes"
    with open_ranges(str(place), "text") as file:
        assert file.seek(2) == 2 and file.read(2) == b"te"
    with pytest.raises(BadInput, match=r"can't read .*nothing: no such file; expected text"):
        read_input(str(root / "nothing"), "text")


def test_it_is_written_when_it_is_complete(root: RemotePath) -> None:
    target = f"{root}/out/new.txt"
    with pytest.raises(ZeroDivisionError), atomic_write(target) as temporary:
        temporary.write_text("half")
        raise ZeroDivisionError
    assert not any_path(target).exists()
    for text in ("whole", "and again"):
        with atomic_write(target) as temporary:
            temporary.write_text(text)
        assert any_path(target).read_text() == text
    (root / "out/new.txt").unlink()
    assert not any_path(target).exists()


def test_what_is_no_url_is_a_local_path(tmp_path: Path) -> None:
    for text in ("a/b", "s3:/bucket", "C:\\x", "train.py:step", "//a", "v5p:4x4x4"):
        assert not is_remote(text) and type(any_path(text)) is type(Path(text))
    assert any_path(f"file://{tmp_path}/x") == tmp_path / "x"
    assert not is_remote(f"file://{tmp_path}/x")
    assert os.fspath(any_path(tmp_path)) == str(tmp_path)


@pytest.mark.parametrize(
    ("url", "kind", "said"),
    [
        ("nosuch://bucket/x", BadInput, "nosuch:// is no protocol that fsspec knows"),
        ("s3://", BadInput, "s3:// names no bucket; expected s3://BUCKET/NAME"),
        ("abfs://bucket/x", Missing, "abfs:// needs a package that is not installed"),
    ],
)
def test_a_url_that_never_works_says_why(url: str, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        any_path(url)


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(protocol: str) -> None:
        raise ImportError("Install s3fs to access S3")

    # The module, which the package hides behind a mapping of the same name.
    monkeypatch.setattr(sys.modules["fsspec.registry"], "get_filesystem_class", missing)
    with pytest.raises(Missing, match=r"pip install 'slipstream\[cloud\]'"):
        any_path("s3://bucket/x")


def test_an_archive_is_read_by_ranges(s3: S3Server, tmp_path: Path) -> None:
    """nsys-jax archives also hold the report, which is most of them and is not read."""
    report = {"report.nsys-rep": os.urandom(6 << 20), "second.nsys-rep": os.urandom(2 << 20)}
    local = write_archive(tmp_path / "a.zip", SMALL, **report)
    url = s3.put("runs/a.zip", local)
    assert load(url).events["duration_ps"].tolist() == load(local).events["duration_ps"].tolist()
    assert 0 < s3.bytes_of("a.zip") < local.stat().st_size / 4
    with open_ranges(url, "a zip file") as file, zipfile.ZipFile(file) as archive:
        assert len(archive.namelist()) == 3


def test_an_export_is_read_with_the_programs_beside_it(s3: S3Server, tmp_path: Path) -> None:
    profile = load(DATA / "single.xplane.pb.gz")
    (tmp_path / "run").mkdir()
    local = export_of(profile).write(tmp_path / "run" / "run.sqlite")
    folder = write_dumps(tmp_path / "run" / "dump", protos("single"))
    for file in (local, *folder.iterdir()):
        s3.put(f"n/{file.relative_to(tmp_path).as_posix()}", file)
    here = load(local)
    for found in (
        load("s3://bucket/n/run"),
        load("s3://bucket/n/run/run.sqlite", dumps="s3://bucket/n/run/dump"),
    ):
        assert found.events["duration_ps"].tolist() == here.events["duration_ps"].tolist()
        assert list(found.programs) == list(here.programs) != []


def test_a_web_server_is_read_with_ranges_or_without(tmp_path: Path, monkeypatch) -> None:
    """Python's own server sends whole files only."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "own-cache"))
    local = write_archive(tmp_path / "a.zip", SMALL, **{"report.nsys-rep": os.urandom(1 << 20)})
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        found = load(f"http://127.0.0.1:{server.server_port}/a.zip")
        server.shutdown()
    assert found.events["duration_ps"].tolist() == load(local).events["duration_ps"].tolist()


def test_only_the_run_that_is_read_is_fetched(s3: S3Server, tmp_path: Path) -> None:
    for number in range(3):
        s3.put(f"log/plugins/profile/2024_0{number}/a.xplane.pb.gz", DATA / "single.xplane.pb.gz")
    profile = load("s3://bucket/log")
    assert profile.warnings[-1].message.startswith("s3://bucket/log holds 2 more runs; 2024_02")
    assert profile.hosts[0].source == "s3://bucket/log/plugins/profile/2024_02/a.xplane.pb.gz"
    assert s3.bytes_of("2024_00/a.xplane.pb.gz") == s3.bytes_of("2024_01/a.xplane.pb.gz") == 0
    with pytest.raises(BadInput, match="s3://bucket/lo does not exist; did you mean log"):
        load("s3://bucket/lo")
    with pytest.raises(BadInput, match="s3://bucket/log has no run 'x'; its runs are: 2024_00, "):
        load("s3://bucket/log", run="x")
