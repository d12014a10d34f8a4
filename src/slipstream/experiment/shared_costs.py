"""Costs from all ranks as one: each rank says its own, the leader merges, all compile with that."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

from slipstream.consensus.consensus import Consensus, Message, stop
from slipstream.costs.files import serialized
from slipstream.costs.merge import merge_costs
from slipstream.costs.table import Cost, CostTable, ProgramCosts

PATIENCE = 10
"""how much longer ranks wait for costs than for each other's steps: no step waits meanwhile"""


class NotShared(Exception):
    """The ranks have no costs in common."""


def shared_costs(
    consensus: Consensus, table: CostTable, fingerprint: str | None
) -> tuple[CostTable, bytes]:
    """The table that all ranks use, and the very bytes that all of them compile with."""
    if consensus.is_alone:
        return table, serialized(table, fingerprint)
    if not consensus.publish("costs", words_of(table)):
        raise NotShared("the costs of this rank did not reach the others")
    proposal = consensus.propose(
        lambda: _merged(consensus, fingerprint), "the costs of the ranks don't merge"
    )
    decided = consensus.decide("costs", proposal, PATIENCE * consensus.patience_s)
    if decided["do"] == "stop":
        raise NotShared(str(decided["why"]))
    return table_of(decided["table"]), base64.b64decode(decided["bytes"])


def _merged(consensus: Consensus, fingerprint: str | None) -> Message:
    wait_s = PATIENCE * consensus.patience_s
    heard = consensus.wait_for_all("costs", wait_s)
    if heard is None:
        return stop(f"{consensus.missing('costs')} gave no costs within {wait_s:.0f} s")
    table = merge_costs([table_of(words) for _, words in sorted(heard.items())])
    # One program, whatever each process numbered it.
    table = replace(table, programs=tuple(replace(p, is_bound=False) for p in table.programs))
    data = base64.b64encode(serialized(table, fingerprint)).decode()
    return {"do": "compile", "table": words_of(table), "bytes": data}


def words_of(table: CostTable) -> dict[str, Any]:
    return {
        "policy": table.policy,
        "facts": {k: v for k, v in table.facts.items() if _is_plain(v)},
        "programs": [
            {
                "fingerprint": part.fingerprint,
                "program": part.program.partition("(")[0],
                "asked": sorted(part.looked_up) if part.looked_up is not None else None,
                "costs": [
                    [c.name, c.us, c.executions, c.is_communication] for c in part.costs.values()
                ],
            }
            for part in table.programs
        ],
    }


def table_of(words: Message) -> CostTable:
    parts = tuple(
        ProgramCosts(
            part["fingerprint"],
            part["program"],
            {name: Cost(name, us, count, talks) for name, us, count, talks in part["costs"]},
            looked_up=frozenset(part["asked"]) if part["asked"] is not None else None,
        )
        for part in words["programs"]
    )
    return CostTable(parts, words["policy"], words["facts"])


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_is_plain(one) for one in value)
    if isinstance(value, dict):
        return all(isinstance(k, str) and _is_plain(v) for k, v in value.items())
    return value is None or isinstance(value, (str, int, float, bool))
