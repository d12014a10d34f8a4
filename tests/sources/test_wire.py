"""Messages of many short fields: a row for each would take a hundred times their bytes."""

import pytest

from fuzz.native_inputs import as_bytes
from slipstream.sources import wire


@pytest.mark.parametrize("field", [b"\x0a\x00", b"\x08\x01", b"\x22\x00"])
def test_many_short_fields_are_refused(field: bytes) -> None:
    data = as_bytes(field * 500_000)
    rows, at, status = wire.fields(data, 0, len(data), least_bytes=64)
    assert status == wire.CROWDED
    assert len(rows) < 50_000
    assert at < len(data)


def test_only_the_fields_that_are_wanted_are_kept() -> None:
    data = as_bytes(b"\x08\x01\x12\x00\x18\x05\x7a\x01x" * 100_000)
    rows, _, status = wire.fields(data, 0, len(data), wire.numbers(3), least_bytes=9)
    assert status == wire.OK
    assert {row[0] for row in rows} == {3}
    assert len(rows) == 100_000


def test_a_field_without_a_number_is_refused() -> None:
    data = as_bytes(bytes(20_000_000))
    assert wire.fields(data, 0, len(data)) == ([], 0, wire.BAD_NUMBER)
