"""SQL over a profile: its tables in DuckDB, in memory, with nothing else in reach."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import astuple, fields
from typing import TYPE_CHECKING, Any

from slipstream.analyses.ops import Op, ops
from slipstream.analyses.summary import ProgramSummary, programs
from slipstream.did_you_mean import did_you_mean
from slipstream.errors import BadInput, missing_extra
from slipstream.outputs.query_rows import QueryResult
from slipstream.outputs.tables import arrow_table, device_name
from slipstream.profile.profile import Profile

if TYPE_CHECKING:
    import pyarrow


def query(profile: Profile, sql: str) -> QueryResult:
    """Run one SQL query over the tables of a profile (see `TABLES`)."""
    duckdb = _duckdb()
    with duckdb.connect(":memory:") as connection:
        # A query can read the profile and nothing else: no files, no network, no extensions.
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        for name in _mentioned(sql):
            connection.register(name, TABLES[name](profile))
        try:
            result = connection.execute(sql)
            rows = result.fetchall() if result.description else []
        except duckdb.Error as error:
            raise _bad_query(str(error)) from None
        return QueryResult(tuple(c[0] for c in result.description or ()), tuple(rows))


def _mentioned(sql: str) -> list[str]:
    """Tables to build: those the query names, or all if it lists tables."""
    words = set(re.findall(r"\w+", sql.lower()))
    asks = words & {"show", "information_schema"} or any(w.startswith("duckdb_") for w in words)
    return [name for name in TABLES if asks or name in words]


def _bad_query(message: str) -> BadInput:
    """DuckDB's message without its code excerpt, and the tables that exist."""
    reason = message.split("\n\nLINE ")[0].strip()
    if unknown := re.search(r"Table with name (\w+) does not exist", reason):
        # DuckDB knows only the tables built for this query, so its own suggestion is poor.
        guess = did_you_mean(unknown[1], TABLES).rstrip()
        reason = f"{unknown[0]}; {guess}" if guess else unknown[0]
    return BadInput(
        f"the query failed: {reason}\n"
        f"tables: {', '.join(TABLES)}\n"
        "columns of one: slipstream query PATH 'describe events'"
    )


# The smaller tables: types of their columns by name, then a tuple for each row.


def _ops(profile: Profile) -> pyarrow.Table:
    types = {f.name: _TYPES[str(f.type)] for f in fields(Op)}
    return _table(types, (astuple(op) for op in ops(profile).ops))


def _programs(profile: Profile) -> pyarrow.Table:
    types = {f.name: _TYPES[str(f.type)] for f in fields(ProgramSummary)}
    return _table(types, (astuple(program) for program in programs(profile)))


def _lanes(profile: Profile) -> pyarrow.Table:
    types = {"lane": "int32", "name": "string", "role": "string"}
    types |= {"device": "string", "host": "string"}
    rows = (
        (i, lane.name, lane.role, device_name(profile, lane), profile.hosts[lane.host].name)
        for i, lane in enumerate(profile.lanes)
    )
    return _table(types, rows)


def _devices(profile: Profile) -> pyarrow.Table:
    types = {"device": "string", "host": "string", "ordinal": "int32"}
    types |= {"kind": "string", "model": "string"}
    rows = (
        (device.name, profile.hosts[device.host].name, device.ordinal, device.kind, device.model)
        for device in profile.devices
    )
    return _table(types, rows)


_INSTRUCTION_FIELDS = {
    "name": "string",
    "opcode": "string",
    "computation": "string",
    "position": "int32",
    "op_name": "string",
    "source_file": "string",
    "source_line": "int32",
    "fusion_kind": "string",
    "custom_call_target": "string",
    "trip_count": "int64",
}


def _instructions(profile: Profile) -> pyarrow.Table:
    types = {"program": "string", **_INSTRUCTION_FIELDS, "shape": "string"}
    types |= {"collective": "string", "collective_bytes": "int64"}
    return _table(types, _instruction_rows(profile))


def _instruction_rows(profile: Profile) -> Iterator[tuple[Any, ...]]:
    for name, program in profile.programs.items():
        for found in program.instructions:
            moved = found.collective
            yield (
                name,
                *(getattr(found, field) for field in _INSTRUCTION_FIELDS),
                str(found.shape),
                moved.kind if moved else None,
                moved.bytes if moved else None,
            )


_TYPES = {
    "str": "string",
    "str | None": "string",
    "int": "int64",
    "int | None": "int64",
    "float": "double",
    "bool": "bool",
}
"""Arrow's names for the types of results' fields"""


def _table(types: Mapping[str, str], rows: Iterable[tuple[Any, ...]]) -> pyarrow.Table:
    import pyarrow as pa

    columns = list(zip(*rows, strict=True)) or [()] * len(types)
    return pa.table(
        {
            name: pa.array(column, pa.type_for_alias(alias))
            for (name, alias), column in zip(types.items(), columns, strict=True)
        }
    )


TABLES: Mapping[str, Callable[[Profile], pyarrow.Table]] = {
    "events": lambda profile: arrow_table(profile, profile.events),
    "host_events": lambda profile: arrow_table(profile, profile.host_events),
    "transfers": lambda profile: arrow_table(profile, profile.transfers),
    "ops": _ops,
    "lanes": _lanes,
    "devices": _devices,
    "programs": _programs,
    "instructions": _instructions,
}
"""tables that a query can read; each is built if a query names it"""


def _duckdb() -> Any:
    try:
        import duckdb
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise missing_extra(error.name or "duckdb", "sql", "query") from None
    return duckdb
