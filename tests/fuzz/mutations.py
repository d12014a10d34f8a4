"""Damage for valid inputs: of their bytes, and of the structure that their format gives them."""

from __future__ import annotations

import io
import json
import re
import sqlite3
import zipfile
from collections.abc import Callable
from contextlib import closing, suppress
from random import Random
from typing import Any

Damage = Callable[[bytes, Random], bytes]

NUMBERS = (
    0, 1, -1, 2, 127, 128, 255, 65535, 2**31 - 1, 2**31, -(2**31), 2**32, 2**53, 2**62,
    2**63 - 1, -(2**63), -(2**62), 1000,
)  # fmt: skip
TEXTS = (
    "", " ", "0", "-1", "nan", "inf", "1e999", "9" * 400, "x" * 3000, "%s%n", "\x00", "\x1b[2J",
    "\u2028", "\ud7ff", "../../x", "(", ")", "{", "}", "[" * 3000, "(" * 3000, '"', "\\", ",", "=",
    "f32[]", "name(12345678901234567890123)", "command_buffer_99999999999999999999",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**63, 10**400, 0.5, 1e308, float("nan"), float("inf"), "", "x",
    "1", [], [[]], [1], ["x"], {}, {"x": 1}, [None], {"": None},
)  # fmt: skip
"""values of every JSON type"""


def damage_bytes(data: bytes, chance: Random) -> bytes:
    """Flip, cut, repeat, insert or overwrite some bytes."""
    made = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        at = chance.randrange(len(made) + 1)
        span = min(chance.choice((1, 1, 2, 4, 8, 64, 1024)), len(made) - at)
        kind = chance.randrange(7)
        if kind == 0 and at < len(made):
            made[at] ^= 1 << chance.randrange(8)
        elif kind == 1 and at < len(made):
            made[at] = chance.choice((0, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        elif kind == 2:
            del made[at:]
        elif kind == 3:
            del made[at : at + span]
        elif kind == 4:
            made[at:at] = made[at : at + span] * chance.choice((1, 2, 50))
        elif kind == 5:
            made[at : at + span] = bytes([chance.choice((0, 0xFF))]) * span
        else:
            made[at:at] = chance.randbytes(chance.choice((1, 2, 8)))
    return bytes(made)


_TOKEN = re.compile(r"\s+|[\w.+\-]+|.", re.S)


def damage_text(data: bytes, chance: Random) -> bytes:
    """Remove, repeat, exchange and replace words and lines; now and then, bytes."""
    if chance.random() < 0.15:
        return damage_bytes(data, chance)
    pieces = _TOKEN.findall(data.decode("utf-8", "replace"))
    for _ in range(chance.choice((1, 1, 2, 5))):
        at = chance.randrange(len(pieces)) if pieces else 0
        span = chance.choice((1, 1, 1, 3, 20))
        kind = chance.randrange(5)
        if kind == 0:
            del pieces[at : at + span]
        elif kind == 1:
            pieces[at:at] = pieces[at : at + span]
        elif kind == 2 and pieces:
            other = chance.randrange(len(pieces))
            pieces[at], pieces[other] = pieces[other], pieces[at]
        elif kind == 3:
            pieces[at : at + 1] = [str(chance.choice(NUMBERS))]
        else:
            pieces[at : at + chance.randrange(2)] = [chance.choice(TEXTS)]
    return "".join(pieces).encode("utf-8", "replace")


def damage_json(data: bytes, chance: Random) -> bytes:
    """Replace a value by one of another type, or remove it; now and then, damage the text."""
    if chance.random() < 0.15:
        return damage_text(data, chance)
    root = [json.loads(data)]
    places: list[tuple[Any, Any]] = []
    pending: list[Any] = [root]
    while pending:
        node = pending.pop()
        keys = list(node) if isinstance(node, dict) else range(len(node))
        for key in keys:
            places.append((node, key))
            if isinstance(node[key], dict | list):
                pending.append(node[key])
    node, key = chance.choice(places)
    if node is not root and chance.random() < 0.2:
        del node[key]
    else:
        node[key] = chance.choice(VALUES)
    return json.dumps(root[0]).encode()


def _varint(value: int) -> bytes:
    value %= 1 << 64
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*made, value])


def _fields(data: bytes) -> list[tuple[int, Any]] | None:
    """(tag, value) of a message's fields; None if this is not a message."""
    found: list[tuple[int, Any]] = []
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    try:
        while at < len(data):
            tag = number()
            if tag >> 3 == 0:
                return None
            if tag & 7 == 0:
                found.append((tag, number()))
                continue
            size = {1: 8, 5: 4}.get(tag & 7)
            if tag & 7 == 2:
                size = number()
            if size is None or at + size > len(data):
                return None
            found.append((tag, data[at : at + size]))
            at += size
    except IndexError:
        return None
    return found


def damage_proto(data: bytes, chance: Random) -> bytes:
    """Change, remove or repeat one field at any depth; all lengths stay right."""
    if chance.random() < 0.2:
        return damage_bytes(data, chance)
    for _ in range(chance.choice((1, 1, 2, 4))):
        data = _damage_field(data, chance)
    return data


def _damage_field(data: bytes, chance: Random) -> bytes:
    fields = _fields(data)
    if not fields:
        return (
            damage_bytes(data, chance) if chance.random() < 0.3 else chance.choice(TEXTS).encode()
        )
    # Rare kinds of fields are as likely as frequent ones.
    wanted = chance.choice(sorted({tag for tag, _ in fields}))
    at = chance.choice([i for i, (tag, _) in enumerate(fields) if tag == wanted])
    tag, value = fields[at]
    kind = chance.random()
    if kind < 0.06:
        del fields[at]
    elif kind < 0.12:
        fields[at:at] = [fields[at]] * chance.choice((1, 3))
    elif kind < 0.16:
        fields[at] = (tag & 7 | chance.randrange(1, 20) << 3, value)
    elif isinstance(value, int):
        fields[at] = (tag, chance.choice(NUMBERS))
    elif tag & 7 != 2:
        fields[at] = (tag, chance.choice((b"\xff", b"\x00", b"\x7f")) * len(value))
    else:
        fields[at] = (tag, _damage_field(value, chance))
    made = bytearray()
    for one, content in fields:
        made += _varint(one)
        if one & 7 == 0:
            made += _varint(content if isinstance(content, int) else 0)
        elif isinstance(content, int):
            made += bytes(8 if one & 7 == 1 else 4) if one & 7 != 2 else b"\0"
        else:
            made += _varint(len(content)) * (one & 7 == 2) + content
    return bytes(made)


def damage_sqlite(data: bytes, chance: Random) -> bytes:
    """Put a value of another type into a row, or change a table; now and then, damage bytes."""
    if chance.random() < 0.25:
        return damage_bytes(data, chance)
    with closing(sqlite3.connect(":memory:")) as db:
        db.deserialize(data)
        names = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
        tables = [name for (name,) in db.execute(names)]
        for _ in range(chance.choice((1, 1, 2, 4))):
            table = chance.choice(tables)
            with suppress(sqlite3.Error):
                _damage_table(db, table, chance)
        db.commit()
        return db.serialize()


def _damage_table(db: sqlite3.Connection, table: str, chance: Random) -> None:
    columns = [row[1] for row in db.execute(f'PRAGMA table_info("{table}")')]
    if not columns:  # dropped before
        return
    column = chance.choice(columns)
    kind = chance.random()
    if kind < 0.05:
        db.execute(f'DROP TABLE "{table}"')
    elif kind < 0.1:
        db.execute(f'ALTER TABLE "{table}" DROP COLUMN "{column}"')
    elif kind < 0.15:
        db.execute(f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO "x{chance.random()}"')
    elif kind < 0.2:
        db.execute(f'DELETE FROM "{table}"')
    elif kind < 0.25:
        db.execute(f'ALTER TABLE "{table}" RENAME TO old_table')
        db.execute(f'CREATE VIEW "{table}" AS SELECT * FROM old_table')
    elif kind < 0.3:
        declared = ", ".join(f'"{name}" {chance.choice(("TEXT", "BLOB", ""))}' for name in columns)
        db.execute(f"CREATE TABLE retyped ({declared})")
        db.execute(f'INSERT INTO retyped SELECT * FROM "{table}"')
        db.execute(f'DROP TABLE "{table}"')
        db.execute(f'ALTER TABLE retyped RENAME TO "{table}"')
    else:
        values: tuple[Any, ...] = (None, 0.5, float("inf"), b"", b"\xff\x00", *TEXTS, *NUMBERS)
        rows = [row for (row,) in db.execute(f'SELECT rowid FROM "{table}"')]
        some = rows if chance.random() < 0.3 else [chance.choice(rows)] if rows else []
        value = chance.choice(values)
        update = f'UPDATE "{table}" SET "{column}" = ? WHERE rowid = ?'
        db.executemany(update, [(value, row) for row in some])


def damage_zip(data: bytes, chance: Random) -> bytes:
    """Damage one file of an archive, or the archive."""
    if chance.random() < 0.3:
        return damage_bytes(data, chance)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    name = chance.choice(sorted(files))
    kind = chance.random()
    if kind < 0.1:
        del files[name]
    elif kind < 0.15:
        files[name + chance.choice(("x", "/part.0", ".gz", ".xz", "\n"))] = files.pop(name)
    elif name.endswith(".parquet") and kind < 0.8:
        files[name] = _damage_parquet(files[name], chance)
    elif name.endswith(".pb"):
        files[name] = damage_proto(files[name], chance)
    else:
        files[name] = damage_bytes(files[name], chance)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for one, content in files.items():
            archive.writestr(one, content)
    return made.getvalue()


def _damage_parquet(data: bytes, chance: Random) -> bytes:
    """Give a column other values or another type, or remove it."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    table = parquet.read_table(io.BytesIO(data))
    at = chance.randrange(table.num_columns)
    name, rows = table.column_names[at], table.num_rows
    kind = chance.randrange(8)
    if kind == 0:
        table = table.remove_column(at)
    elif kind == 1:
        table = table.slice(0, chance.choice((0, 1)))
    else:
        columns: tuple[Any, ...] = (
            pa.array([chance.choice(NUMBERS)] * rows, pa.int64()),
            pa.array([None] * rows, pa.int64()),
            pa.array([chance.choice((0.5, float("nan"), float("inf"), -1e308))] * rows),
            pa.array([chance.choice(TEXTS)] * rows),
            pa.array([b"\xff"] * rows),
            pa.array([[1, 2]] * rows),
            pa.array([True] * rows),
        )
        table = table.set_column(at, name, chance.choice(columns))
    made = io.BytesIO()
    parquet.write_table(table, made)
    return made.getvalue()
