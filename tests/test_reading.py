"""Input files: what is opened, unpacked and refused."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import stat
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from archive_builder import SMALL, write_archive
from builders import space
from fuzz.readers import READERS, Reader
from slipstream.cli import main as cli
from slipstream.errors import BadInput
from slipstream.reading import (
    damage,
    object_or_none,
    read_input,
    read_object,
    unpack,
    unpacked_limit,
)
from slipstream.sources.load import load

READERS_OF_NAMED_FILES = [reader for reader in READERS if reader.name != "manifest"]


@contextmanager
def without_rights(folder: Path) -> Iterator[None]:
    """As a user who may not look into a folder; the superuser may look everywhere."""
    before = stat.S_IMODE(folder.stat().st_mode)
    folder.chmod(0)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)
        folder.chmod(before)


@pytest.mark.parametrize("reader", READERS_OF_NAMED_FILES, ids=lambda reader: reader.name)
def test_what_is_not_a_file_is_refused_without_waiting(reader: Reader, tmp_path: Path) -> None:
    """A FIFO nobody writes to, a device without an end, nothing, and a name that is too long."""
    fifo = tmp_path / reader.file
    os.mkfifo(fifo)
    endless = tmp_path / "device" / reader.file
    endless.parent.mkdir()
    endless.symlink_to("/dev/zero")
    for path in (fifo, endless, tmp_path / "no" / reader.file, tmp_path / f"{'x' * 300}.pb"):
        with pytest.raises(BadInput):
            reader.read(path)


@pytest.mark.parametrize("reader", READERS_OF_NAMED_FILES, ids=lambda reader: reader.name)
def test_files_that_may_not_be_read(reader: Reader, tmp_path: Path) -> None:
    folder = tmp_path / "private"
    folder.mkdir()
    path = folder / reader.file
    path.write_bytes(reader.inputs[0])
    with without_rights(folder), pytest.raises(BadInput, match="(?i)permission denied"):
        reader.read(path)


def test_folders_that_may_not_be_read(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    with without_rights(folder), pytest.raises(BadInput, match="can't read .*permission denied"):
        load(folder)


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS refuses such names itself")
def test_names_that_are_not_utf8(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = space()
    made.gpu().line("Stream #7").kernel("gemm", 0, 10, "dot.1", correlation=1)
    path = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.xplane.pb")
    made.write(Path(path))
    for command in ("summary", "ops", "report"):
        arguments = [command, path, *(["-o", str(tmp_path / "page.html")] * (command == "report"))]
        monkeypatch.setattr(sys, "argv", ["slipstream", *arguments])
        assert cli._run() == 0, capsys.readouterr().err


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress])
def test_compressed_files_have_a_limit(compress, tmp_path, monkeypatch) -> None:
    path = tmp_path / "zeros.hlo"
    path.write_bytes(compress(bytes(3_000_000)))
    assert len(read_input(path, "zeros")) == 3_000_000
    monkeypatch.setenv("SLIPSTREAM_MAX_UNPACKED", "2000000")
    with pytest.raises(BadInput, match=r"unpacks to more than 2 MB .*SLIPSTREAM_MAX_UNPACKED="):
        read_input(path, "zeros")
    monkeypatch.setenv("SLIPSTREAM_MAX_UNPACKED", "two")
    with pytest.raises(BadInput, match="expected a number of bytes in digits"):
        read_input(path, "zeros")


def test_what_is_unpacked_depends_on_the_packed_size() -> None:
    assert unpacked_limit(1_500_000) == 150_000_000
    assert unpacked_limit(1000) == 64 << 20


def test_archives_have_the_limit_too(tmp_path, monkeypatch) -> None:
    path = write_archive(tmp_path / "run.zip", SMALL)
    assert load(path)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("system-metadata.parquet", bytes(100 << 20))
    with pytest.raises(BadInput, match=r"system-metadata\.parquet unpacks to more than"):
        load(path)


def test_a_recording_of_zeros_in_gzip(tmp_path) -> None:
    path = tmp_path / "host.xplane.pb.gz"
    path.write_bytes(gzip.compress(bytes(80 << 20), 9))
    with pytest.raises(BadInput, match="unpacks to more than"):
        load(path)


def test_damaged_compressed_data() -> None:
    with pytest.raises(BadInput, match="x is not a complete gzip file"):
        unpack(io.BytesIO(gzip.compress(b"abc" * 999)[:20]), "x")
    with pytest.raises(BadInput, match="x is not a complete xz file"):
        unpack(io.BytesIO(lzma.compress(b"abc" * 999)[:40]), "x")


@pytest.mark.parametrize(
    ("text", "seen"),
    [("[]", "has a list"), ("3", "has a number"), ("null", "has null"), ("{", "JSONDecodeError"),
     ("[" * 100_000, "nesting that is too deep"), ("\xff", "UnicodeDecodeError")],
)  # fmt: skip
def test_other_json_than_an_object(text, seen, tmp_path) -> None:
    path = tmp_path / "settings.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(BadInput, match=rf"settings\.json .*{seen}"):
        read_object(path, "settings")


@pytest.mark.parametrize("error", [KeyError("x"), RecursionError(), MemoryError(), StopIteration()])
def test_damage_names_the_file_and_what_was_expected(error: Exception) -> None:
    wanted = pytest.raises(BadInput, match="a.b is damaged: expected costs, but saw")
    with wanted as caught, damage("a.b", "costs"):
        raise error
    assert caught.value.__cause__ is error


@pytest.mark.parametrize(
    "content", ["", "[]", "3", '{"a": ', "\0", "[" * 100_000, '{"a":' * 100_000], ids=range(7)
)
def test_an_own_file_that_is_damaged_counts_as_missing(tmp_path, content):
    file = tmp_path / "own.json"
    assert object_or_none(file) is None
    assert object_or_none(tmp_path) is None
    file.write_text(content)
    assert object_or_none(file) is None
    file.write_bytes(b"\xff" + content.encode())
    assert object_or_none(file) is None
    file.write_text('{"a": 1}')
    assert object_or_none(file) == {"a": 1}
