"""Every reader of damaged files returns, or raises an error of ours; a short run of `run.py`.

`SLIPSTREAM_FUZZ=10000 pytest tests/fuzz/test_readers.py` reads that many files with each reader;
other ones with another `SLIPSTREAM_FUZZ_SEED`.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from random import Random

import pytest

from fuzz.readers import READERS, Reader
from slipstream.errors import SlipstreamError

EXECUTIONS = int(os.environ.get("SLIPSTREAM_FUZZ", "60"))
FIRST = int(os.environ.get("SLIPSTREAM_FUZZ_SEED", "0"))


def read(reader: Reader, data: bytes) -> object:
    """Read bytes from a file of the right name; an error of ours is returned."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        path = Path(folder) / reader.file
        path.write_bytes(data)
        try:
            return reader.read(path)
        except SlipstreamError as error:
            return error


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_intact_files_are_read(reader: Reader) -> None:
    for data in reader.inputs:
        assert not isinstance(read(reader, data), SlipstreamError)


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_damaged_files_are_read_or_refused(reader: Reader) -> None:
    for seed in range(FIRST, FIRST + EXECUTIONS):
        chance = Random(f"{reader.name} {seed}")
        data = reader.damage(chance.choice(reader.inputs), chance)
        try:
            found = read(reader, data)
        except Exception as error:
            raise AssertionError(f"{reader.name}, seed {seed}: {error!r}") from error
        if isinstance(found, SlipstreamError):
            assert found.exit_code in (2, 3)


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
@pytest.mark.parametrize("piece", [b"\0", b"\xff", b"(", b"[", b"{", b"\x0a", b"'", b"$(", b"*a "])
def test_files_of_one_repeated_piece(reader: Reader, piece: bytes) -> None:
    read(reader, piece * (20_000 // len(piece)))
