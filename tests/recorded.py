"""Programs from the recordings in tests/data, for tests that don't read profiles."""

import gzip
from functools import cache
from pathlib import Path

from slipstream.profile.program import Program
from slipstream.sources.hlo.reader import program_from_proto
from slipstream.sources.proto_schema import message

DATA = Path(__file__).resolve().parent / "data"


@cache
def protos(recording: str) -> dict[str, bytes]:
    """The HloProtos in a recording, by `name(program id)`."""
    data = gzip.decompress((DATA / f"{recording}.xplane.pb.gz").read_bytes())
    space = message("XSpace").FromString(data)
    plane = next(plane for plane in space.planes if plane.name == "/host:metadata")
    return {
        entry.name: stat.bytes_value
        for entry in plane.event_metadata.values()
        for stat in entry.stats
        if stat.bytes_value
    }


@cache
def recorded(recording: str, name: str) -> Program:
    """One program of a recording."""
    return program_from_proto(protos(recording)[name], jaxlib_version="0.11.2")
