"""Links in simulated steps: small timelines by hand, and an FSDP layer stack."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from link_invariant import check_links
from schedules import MACHINE, NOTHING, costs, gather, gathered, kernel, program
from slipstream.machines.links import LINK_OUT
from slipstream.machines.topology import machine
from slipstream.outputs.terminal.compiled.predict import render_predictions
from slipstream.profile.program import Program
from slipstream.simulate.clock import NodeTimes
from slipstream.simulate.engine import simulation
from slipstream.simulate.link_use import Window, fullest_window, link_use
from slipstream.simulate.prediction import predict
from slipstream.simulate.task_graph import START, Node, TaskGraph


def window(*operations: tuple[int, int, int]) -> Window:
    """Of operations (start, end, busy)."""
    start, end, busy = np.array(operations, np.int64).T
    return fullest_window(start, end, busy)


def test_the_fullest_window_is_found() -> None:
    """
    ██████████    busy 4
       ███        busy 3, all of its time
           ███    busy 1
    """
    assert window((0, 10, 4), (3, 6, 3), (7, 10, 1)) == Window(3, 6, 1.0)
    assert window((0, 10, 8), (3, 6, 3), (7, 10, 1)) == Window(0, 10, 1.2)
    assert window((0, 10, 5)) == Window(0, 10, 0.5)


@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.integers(1, 12), st.integers(0, 12)),
        min_size=1, max_size=9,
    )
)  # fmt: skip
def test_the_fullest_window_is_that_of_all_windows(drawn: list[tuple[int, int, int]]) -> None:
    operations = [(start, start + length, busy) for start, length, busy in drawn]
    windows = [(a, b) for a, _, _ in operations for _, b, _ in operations if a < b]
    most = max(
        sum(busy for start, end, busy in operations if a <= start and end <= b) / (b - a)
        for a, b in windows
    )
    assert window(*operations).full == pytest.approx(most)


def test_the_invariant_notices_a_link_that_carries_twice_what_it_can() -> None:
    nodes = [
        Node(START, None, 100, stream=1 + slot, slot=slot, links=((LINK_OUT, 1.0),))  # type: ignore[arg-type]
        for slot in range(2)
    ]
    graph = TaskGraph(None, ["", "", ""], nodes, np.arange(2, dtype=np.int32), 2)  # type: ignore[arg-type]
    start, wait = np.zeros(2, np.int64), np.zeros(2, np.int64)
    check_links(graph, NodeTimes(start, np.array([200, 200]), wait))
    with pytest.raises(AssertionError, match="NVLink out"):
        check_links(graph, NodeTimes(start, np.array([100, 100]), wait))


def test_links_of_a_step() -> None:
    """Two gathers of 64 bytes that take 1 ps alone fill the link, and take 2 together."""
    found = program(
        gather("g", "a"), gather("h", "a"), kernel("b", "a"), gathered("gd", "g"),
        gathered("hd", "h"), kernel("c", "b", root=True),
        flags={"xla_gpu_experimental_parallel_collective_overlap_limit": "2"},
    )  # fmt: skip
    fast = 1e-5
    estimates = costs(g=fast, h=fast, b=fast, c=fast)
    step = simulation(found, MACHINE, estimates=estimates, overheads=NOTHING)
    uses = {use.link: use for use in link_use(step, found, MACHINE)}
    assert uses.keys() == {"NVLink out", "NVLink in"}
    assert uses["NVLink out"].us == pytest.approx(2 * fast)
    assert uses["NVLink out"].fullest == Window(0, 20, pytest.approx(1))


LAYERS, WIDTH, HIDDEN, TOKENS, DEVICES = 4, 8192, 28672, 1024, 64


def fsdp_mlp(limit: int) -> Program:
    """The forward pass of an MLP whose weights are spread over 64 GPUs; all are gathered at once.

    XLA writes such schedules if it may run several collectives at a time.
    """
    everyone = ",".join(map(str, range(DEVICES)))
    groups = f"replica_groups={{{{{everyone}}}}}, dimensions={{0}}"
    lines, starts = [], []
    for layer in range(LAYERS):
        for name, (rows, columns) in {"w": (WIDTH, HIDDEN), "v": (HIDDEN, WIDTH)}.items():
            part, whole = f"bf16[{rows // DEVICES},{columns}]", f"bf16[{rows},{columns}]"
            weight = f"{name}{layer}"
            lines.append(f"%{weight} = {part} parameter({len(lines) + 1})")
            starts.append(f"%{weight}s = ({part}, {whole}) all-gather-start(%{weight}), {groups}")
    x = "x"
    lines += [f"%x = bf16[{TOKENS},{WIDTH}] parameter({len(lines) + 1})", *starts]
    for layer in range(LAYERS):
        for name, (rows, columns) in {"w": (WIDTH, HIDDEN), "v": (HIDDEN, WIDTH)}.items():
            weight, product = f"{name}{layer}", f"{name}{layer}p"
            lines.append(f"%{weight}d = bf16[{rows},{columns}] all-gather-done(%{weight}s)")
            lines.append(
                f"%{product} = bf16[{TOKENS},{columns}] dot(%{x}, %{weight}d), "
                "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
            )
            x = product
    lines[-1] = "ROOT " + lines[-1]
    flag = "xla_gpu_experimental_parallel_collective_overlap_limit"
    return program(*lines, flags={flag: str(limit)})


@pytest.mark.parametrize("limit", [1, 2, 4, 8])
def test_gathers_at_once_are_not_faster_than_the_wire(limit: int) -> None:
    where, found = machine("64xH200"), fsdp_mlp(limit)
    moved = 2 * LAYERS * 2 * WIDTH * HIDDEN
    wire_us = 1e6 * moved * (DEVICES - 1) / DEVICES / (8 * where.network.bandwidth)
    predicted = predict(found, where)
    assert predicted.step_us >= predicted.bounds.least_us >= wire_us
    assert "\n  of the link" in render_predictions([predicted]).plain
    step = simulation(found, where)
    network = next(use for use in link_use(step, found, where) if use.link == "network out")
    assert network.bytes == pytest.approx(moved * (DEVICES - 1) / DEVICES / 8)
    # One at a time, the network idles while a gather starts; several at once fill it.
    assert network.fullest.full == pytest.approx(1 if limit > 1 else 0.78, abs=0.01)
