"""Ranges: what their texts say, and which of them a call lies in."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.sources.nsys.ranges import (
    COMPILE,
    INSTRUCTION,
    OTHER,
    PROGRAM,
    Launches,
    RangeLabel,
    Spans,
    enclosing,
    parse_label,
)


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("TSL:Thunk:#name=a[x=(0,)],hlo_op=all-reduce.1#", RangeLabel(INSTRUCTION, "all-reduce.1")),
        ("Thunk:#hlo_op=dot.3,unique_hlo_op_id=77#", RangeLabel(INSTRUCTION, "dot.3")),
        (
            "TSL:XlaModule:#prefix=jit(f),hlo_module=jit_f,program_id=7#",
            RangeLabel(PROGRAM, "jit_f(7)"),
        ),
        ("XlaModule:#hlo_module=extracted#", RangeLabel(PROGRAM, "extracted")),
        ("TSL:XlaCompileBackend:#module=jit_f,program_id=7#", RangeLabel(COMPILE, "jit_f(7)")),
        ("TSL:XlaAutotunerMeasurement:#hlo_op=dot.3#", RangeLabel(COMPILE)),
        ("train#_r=1,step_num=12#", RangeLabel(OTHER, step=12)),
        ("step 12", RangeLabel(OTHER, step=12)),
        ("aten::view, op_id = 314290", RangeLabel(OTHER)),
        ("NCCL:ncclGroupEnd", RangeLabel(OTHER)),
    ],
)  # fmt: skip
def test_what_a_label_says(text: str, label: RangeLabel) -> None:
    assert parse_label(text) == label


@st.composite
def nested(draw: st.DrawFn) -> list[tuple[int, int, int, int]]:
    """(start, end, thread, label) of ranges that nest, on two threads."""
    found = []
    for thread in (0, 1):
        size = draw(st.integers(0, 8))
        at, stack = 0, []
        for _ in range(2 * size):
            at += draw(st.integers(1, 3))
            if stack and draw(st.booleans()):
                found.append((stack.pop(), at, thread, draw(st.integers(0, 3))))
            else:
                stack.append(at)
        while stack:
            at += 1
            found.append((stack.pop(), at, thread, draw(st.integers(0, 3))))
    return found


@given(nested(), st.lists(st.tuples(st.integers(0, 40), st.integers(0, 1)), max_size=12))
def test_the_sweep_finds_what_looking_at_every_range_finds(
    ranges: list[tuple[int, int, int, int]], calls: list[tuple[int, int]]
) -> None:
    # Half steps: a call never begins with a range, so that there is one answer.
    starts = [2 * time + 1 for time, _ in calls]
    spans = Spans(
        np.array([2 * r[0] for r in ranges], np.int64),
        np.array([2 * r[1] for r in ranges], np.int64),
        np.array([r[2] for r in ranges], np.int32),
        np.array([r[3] for r in ranges], np.int32),
    )
    times = np.array(starts, np.int64)
    threads = np.array([thread for _, thread in calls], np.int32)
    found = enclosing(spans, Spans(times, times, threads, threads), (0, 1, 2, 3), 2)
    for row, (start, (_, thread)) in enumerate(zip(starts, calls, strict=True)):
        around = [r for r in ranges if r[2] == thread and 2 * r[0] < start < 2 * r[1]]
        op, program = -1, -1
        for _, _, _, label in sorted(around):
            if program == -2 or label == COMPILE:
                op, program = -1, -2
            elif label == PROGRAM:
                op, program = -1, label
            elif label == INSTRUCTION:
                op = label
        assert (found[0][row], found[1][row]) == (op, program)


@pytest.mark.parametrize("spread", [1, 10**9])
def test_launches_are_found_however_they_are_numbered(spread: int) -> None:
    process = np.array([0, 1, 0, 1], np.int32)
    correlation = np.array([5, 5, 5 + spread, 7], np.int64)
    launches = Launches(process, correlation, 3)
    assert (launches.table is None) == (spread > 1)
    wanted = np.array([0, 0, 1, 1, 1, 0, 2], np.int32)
    numbers = np.array([5, 5 + spread, 5, 7, 6, 10**12, 5], np.int64)
    assert launches.find(wanted, numbers).tolist() == [0, 2, 1, 3, -1, -1, -1]


IDS = st.sampled_from([0, 1, 2, -1, 2**31, 2**40, 2**62, -(2**62), 2**63 - 1, -(2**63)])


@given(
    st.lists(st.tuples(st.integers(0, 2), IDS | st.integers(-9, 9)), max_size=8),
    st.lists(st.tuples(st.integers(0, 2), IDS | st.integers(-9, 9)), max_size=8),
)
def test_launches_are_found_whatever_their_ids(
    calls: list[tuple[int, int]], work: list[tuple[int, int]]
) -> None:
    """Differences of ids need not fit into 64 bits."""
    columns = [
        (np.array([p for p, _ in rows], np.int32), np.array([c for _, c in rows], np.int64))
        for rows in (calls, work)
    ]
    found = Launches(*columns[0], 3).find(*columns[1])
    assert found.tolist() == [calls.index(one) if one in calls else -1 for one in work]


@pytest.mark.parametrize("text", ["step " + "9" * 40, f"train#step_num={'9' * 5000}#"])
def test_a_number_of_a_step_that_is_none(text: str) -> None:
    assert parse_label(text) == RangeLabel(OTHER)
