"""The costs of all ranks become one table, however many ranks there are."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from slipstream.consensus.consensus import Consensus
from slipstream.consensus.kvstore import FolderStore
from slipstream.costs.merge import merge_costs
from slipstream.costs.table import Cost, CostTable, ProgramCosts
from slipstream.experiment.shared_costs import (
    MAX_TABLES,
    merge_messages,
    message_of,
    ranks_to_merge,
    share_costs,
    table_of,
)


def table(rank=0, policy="typical", fingerprint="f" * 32, count=3):
    costs = {
        "dot": Cost("dot", 1.0 + rank, 3),
        "all-gather-start": Cost("all-gather-start", 200.0 - rank, None, is_communication=True),
        f"fusion.{rank % 2}": Cost(f"fusion.{rank % 2}", 2.0 * rank, rank),
    }
    looked_up = frozenset({"dot", "all-gather-start", "unseen"})
    program = ProgramCosts(fingerprint, f"jit_step({rank})", costs, looked_up=looked_up)
    return CostTable((program,), policy, {"sources": [f"rank{rank}"], "jaxlib": "1"})


def test_a_table_arrives_as_it_was_sent():
    sent = table(3)
    (program,) = sent.programs
    assert table_of(message_of(sent)) == replace(
        sent, programs=(replace(program, program="jit_step"),)
    )
    assert (
        table_of(message_of(CostTable((ProgramCosts(None, "jit_f", {}),)))).programs[0].costs == {}
    )


@pytest.mark.parametrize("policy", ["typical", "jax", "max-communication", "median"])
def test_messages_merge_as_tables_do(policy):
    tables = [table(rank, policy) for rank in range(5)]
    expected = merge_costs(tables)
    merged = merge_messages([message_of(one) for one in tables])
    assert merged.programs[0].costs == expected.programs[0].costs
    assert merged.facts == expected.facts
    assert merged.programs[0].looked_up == expected.programs[0].looked_up


def test_ranks_whose_programs_differ_give_the_costs_of_both():
    """Each rank may have autotuned kernels of its own."""
    merged = merge_messages([message_of(table(0)), message_of(table(1, fingerprint="e" * 32))])
    assert [part.fingerprint for part in merged.programs] == ["f" * 32, "e" * 32]
    assert not any(part.is_bound for part in merged.programs)


def test_a_bounded_number_of_ranks_is_merged():
    assert ranks_to_merge(range(MAX_TABLES)) == tuple(range(MAX_TABLES))
    found = ranks_to_merge(range(1000))
    assert len(set(found)) == MAX_TABLES and found[0] == 0 and found[-1] >= 984


def test_all_ranks_get_the_same_bytes(tmp_path):
    """More ranks than tables: those that send none compile with the same costs."""
    count = MAX_TABLES + 6
    store, started = FolderStore(tmp_path), threading.Barrier(count)

    def share(rank):
        consensus = Consensus(tuple(range(count)), rank, store, "job")
        started.wait()
        return share_costs(consensus, table(rank), "f" * 32)

    with ThreadPoolExecutor(count) as pool:
        found = list(pool.map(share, range(count)))
    assert len({data for _, data in found}) == 1
    (program,) = found[-1][0].programs
    assert program.costs["dot"].executions == 3 * MAX_TABLES
    assert program.costs["all-gather-start"].us == 200.0 - ranks_to_merge(range(count))[-1]
