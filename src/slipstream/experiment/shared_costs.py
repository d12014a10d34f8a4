"""The costs of all ranks, merged into one table with which all of them compile.

Each rank extracts the costs of its own recording and sends them; the leader merges them. However
many ranks a job has, at most `MAX_TABLES` send theirs, evenly spread: the programs are the same,
and the median of so many hardly changes with more. So the leader's work is bounded.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from slipstream.consensus.consensus import Consensus, Message, stop
from slipstream.costs.files import serialized
from slipstream.costs.merge import (
    CostColumns,
    Flags,
    Numbers,
    merge_columns,
    merge_costs,
    merge_facts,
)
from slipstream.costs.table import CostTable, ProgramCosts

MAX_TABLES = 64
"""ranks whose costs are merged"""


class CostsNotShared(Exception):
    """The ranks have no costs in common."""


def ranks_to_merge(ranks: Sequence[int]) -> tuple[int, ...]:
    """The ranks whose costs count: all of them, or so many of them, evenly spread."""
    if len(ranks) <= MAX_TABLES:
        return tuple(ranks)
    return tuple(ranks[i * len(ranks) // MAX_TABLES] for i in range(MAX_TABLES))


def share_costs(
    consensus: Consensus, table: CostTable, fingerprint: str | None
) -> tuple[CostTable, bytes]:
    """The table that all ranks use, and the exact bytes that all of them compile with."""
    if consensus.is_alone:
        return table, serialized(table, fingerprint)
    is_merged = consensus.rank in ranks_to_merge(consensus.ranks)
    if is_merged and not consensus.publish("costs", message_of(table)):
        raise CostsNotShared("the costs of this rank did not reach the others")
    proposal = consensus.propose(
        lambda: _merged(consensus, fingerprint), "the costs of the ranks don't merge"
    )
    decided = consensus.decide_in_background("costs", proposal)
    if decided["do"] == "stop":
        raise CostsNotShared(str(decided["why"]))
    return table_of(decided["table"]), base64.b64decode(decided["bytes"])


def _merged(consensus: Consensus, fingerprint: str | None) -> Message:
    wait_s = consensus.patience.background_s
    ranks = ranks_to_merge(consensus.ranks)
    received = consensus.from_all("costs", wait_s, ranks)
    if received is None:
        return stop(f"{consensus.missing('costs', ranks)} gave no costs within {wait_s:.0f} s")
    table = merge_messages([received[rank] for rank in ranks])
    data = base64.b64encode(serialized(table, fingerprint)).decode()
    return {"do": "compile", "table": message_of(table), "bytes": data}


def merge_messages(messages: Sequence[Message]) -> CostTable:
    """The merged table of several ranks; it is one program, whatever each process numbers it."""
    policy, *others = {message["policy"] for message in messages}
    parts = [part for message in messages for part in message["programs"]]
    if others or len({_identity(part) for part in parts}) > 1:
        table = merge_costs([table_of(message) for message in messages])
        return replace(table, programs=tuple(replace(p, is_bound=False) for p in table.programs))
    merged = merge_columns([_columns_of(part) for part in parts], policy)
    one = _program_of(parts[0], merged)
    return CostTable((one,), policy, merge_facts([message["facts"] for message in messages]))


def _identity(part: Message) -> str:
    return part["fingerprint"] or str(part["program"])


# A table as a message: columns, because a program may have tens of thousands of instructions.


def message_of(table: CostTable) -> Message:
    return {
        "policy": table.policy,
        "facts": {k: v for k, v in table.facts.items() if _is_plain(v)},
        "programs": [_program_message(part) for part in table.programs],
    }


def _program_message(part: ProgramCosts) -> Message:
    columns = CostColumns.of(part)
    return {
        "fingerprint": part.fingerprint,
        # Without the number that each process gives its programs.
        "program": part.program.partition("(")[0],
        "looked_up": _joined(sorted(part.looked_up)) if part.looked_up is not None else None,
        "names": _joined(columns.names),
        "us": _packed(columns.us),
        "executions": _packed(columns.executions),
        "is_communication": _packed(columns.is_communication),
    }


def table_of(message: Message) -> CostTable:
    parts = tuple(_program_of(part, _columns_of(part)) for part in message["programs"])
    return CostTable(parts, message["policy"], message["facts"])


def _columns_of(part: Message) -> CostColumns:
    return CostColumns(
        _split(part["names"]),
        np.frombuffer(base64.b64decode(part["us"]), np.float64),
        np.frombuffer(base64.b64decode(part["executions"]), np.float64),
        np.frombuffer(base64.b64decode(part["is_communication"]), np.bool_),
    )


def _program_of(part: Message, columns: CostColumns) -> ProgramCosts:
    looked_up = part["looked_up"]
    return ProgramCosts(
        part["fingerprint"],
        part["program"],
        columns.costs(),
        looked_up=frozenset(_split(looked_up)) if looked_up is not None else None,
    )


def _joined(names: Iterable[str]) -> str:
    return "\n".join(names)


def _split(names: str) -> list[str]:
    return names.split("\n") if names else []


def _packed(column: Numbers | Flags) -> str:
    return base64.b64encode(column.tobytes()).decode()


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_is_plain(one) for one in value)
    if isinstance(value, dict):
        return all(isinstance(k, str) and _is_plain(v) for k, v in value.items())
    return value is None or isinstance(value, (str, int, float, bool))
