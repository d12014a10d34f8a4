"""Native group-bys against numpy, and nesting against a check of every moment."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.profile.grouping import (
    first_rows,
    group_counts,
    group_pairs,
    group_spans,
    group_sums,
    group_table,
    innermost,
    rows_ranked,
    self_times,
)

int64s = st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1)
int32s = st.integers(-3, 3) | st.integers(-(2**31), 2**31 - 1)


@given(st.lists(st.tuples(int64s, int32s), max_size=60))
def test_groups_are_those_of_numpy(pairs):
    a = np.array([pair[0] for pair in pairs], np.int64)
    b = np.array([pair[1] for pair in pairs], np.int32)
    groups, firsts = group_pairs(a, b)
    order = list(dict.fromkeys(pairs))
    assert groups.tolist() == [order.index(pair) for pair in pairs]
    assert firsts.tolist() == [pairs.index(pair) for pair in order]


@pytest.mark.parametrize("distinct", [2000, 2048, 2049, 60_000])
def test_more_groups_than_the_first_table_holds(distinct):
    rng = np.random.default_rng(distinct)
    a = rng.permutation(np.repeat(np.arange(distinct, dtype=np.int64) << 31, 2))
    b = (a >> 40).astype(np.int32)
    groups, firsts = group_pairs(a, b)
    _, index, inverse = np.unique(a, return_index=True, return_inverse=True)
    assert sorted(firsts.tolist()) == sorted(index.tolist())
    assert (np.diff(firsts) > 0).all()
    assert (a[firsts][groups] == a).all()
    assert len(np.unique(groups)) == len(np.unique(inverse)) == distinct


def test_columns_that_are_not_contiguous():
    table = np.arange(12, dtype=np.int64).reshape(6, 2) // 4
    groups, firsts = group_pairs(table[:, 0], table[:, 1].astype(np.int32)[::-1])
    assert (len(groups), len(firsts)) == (6, 3)


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(-50, 50), st.integers(0, 20), st.integers(0, 9)),
        max_size=30,
    )
)
def test_spans_of_groups(rows):
    table = np.array(rows, np.int64).reshape(-1, 4)
    names, groups = np.unique(table[:, 0], return_inverse=True)
    columns = (table[:, 1], table[:, 2], table[:, 3])
    found = group_spans(groups.astype(np.int32), *columns, len(names))
    members = [[row for row in rows if row[0] == name] for name in names.tolist()]
    assert found[0].tolist() == [min(row[1] for row in group) for group in members]
    assert found[1].tolist() == [max(row[1] + row[2] for row in group) for group in members]
    assert found[2].tolist() == [min(row[3] for row in group) for group in members]
    assert found[3].tolist() == [len(group) for group in members]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(-9, 9)), max_size=20))
def test_tables_of_sums(rows):
    table = np.array(rows, np.int64).reshape(-1, 3)
    found = group_table(table[:, 0], table[:, 1], table[:, 2], (4, 3))
    assert found.tolist() == [
        [sum(v for g, c, v in rows if (g, c) == (group, column)) for column in range(3)]
        for group in range(4)
    ]


events = st.lists(
    st.tuples(st.integers(0, 2), st.integers(-10, 15), st.integers(0, 12)), max_size=14
)


def columns_of(rows: list[tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    table = np.array(rows, np.int64).reshape(-1, 3)
    return table[:, 0].astype(np.int32), table[:, 1], table[:, 2]


def owners(rows: list[tuple[int, int, int]]) -> dict[tuple[int, int], int]:
    """Whose each moment of each lane is: the last to start; of those, the shortest; the last."""
    found = {}
    for lane in range(3):
        for t in range(-10, 30):
            running = [
                (start, -duration, row)
                for row, (where, start, duration) in enumerate(rows)
                if where == lane and start <= t < start + duration
            ]
            if running:
                found[lane, t] = max(running)[2]
    return found


@given(events)
def test_own_times_are_those_of_every_moment(rows):
    """Also where events overlap without nesting, as broken clocks make them."""
    told = owners(rows)
    expected = [sum(row == owner for owner in told.values()) for row in range(len(rows))]
    assert self_times(*columns_of(rows)).tolist() == expected


@given(events)
def test_innermost_stretches_are_those_of_every_moment(rows):
    found = {}
    for row, start, end in zip(*(c.tolist() for c in innermost(*columns_of(rows))), strict=True):
        assert start < end
        for t in range(start, end):
            assert (rows[row][0], t) not in found
            found[rows[row][0], t] = row
    assert found == owners(rows)


def test_own_times_of_a_loop():
    # while 0…100 holds a call 10…50, which holds two kernels, and a kernel after it
    rows = [(0, 0, 100), (0, 10, 40), (0, 12, 8), (0, 20, 30), (0, 60, 40), (1, 0, 100)]
    assert self_times(*columns_of(rows)).tolist() == [20, 2, 8, 30, 40, 100]


def test_deep_nesting():
    depth = 5000
    rows = [(0, i, 2 * depth - 2 * i) for i in range(depth)]
    assert set(self_times(*columns_of(rows)).tolist()) == {2}


@pytest.mark.parametrize("wrong", [-1, 3, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize(
    "grouped",
    [
        lambda groups, values: first_rows(groups, 3),
        lambda groups, values: group_spans(groups, values, values, values, 3),
        lambda groups, values: group_sums(groups, values, 3),
        lambda groups, values: group_counts(groups, 3),
        lambda groups, values: group_table(groups, 0 * groups, values, (3, 1)),
        lambda groups, values: group_table(0 * groups, groups, values, (1, 3)),
        lambda groups, values: rows_ranked(groups, values),
    ],
)
def test_a_group_that_does_not_exist_is_an_error(grouped, wrong):
    values = np.arange(3)
    grouped(np.array([0, 2, 1], np.int32), values)
    with pytest.raises(IndexError, match="there is no group|outside of the table"):
        grouped(np.array([0, wrong, 1], np.int32), values)
