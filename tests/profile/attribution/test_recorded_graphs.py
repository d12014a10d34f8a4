"""Attribution inside graphs with independent branches, against the same programs without graphs.

Recorded by `tests/record/graph_orders.py` on an H200.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from graph_orders import captured
from slipstream.analyses.ops import ops
from slipstream.costs.extract import extract_costs
from slipstream.costs.table import Cost
from slipstream.profile.attribution.attribution import attribute
from slipstream.profile.attribution.graph_kernels import instructions_in_graphs
from slipstream.profile.events import Table, Texts
from slipstream.profile.profile import Profile
from slipstream.sources.load import load

REPOSITORY = Path(__file__).resolve().parents[3]
DATA = REPOSITORY / "tests" / "data" / "graphs"
MODELS = ("moe", "parallel", "branches")
IN_ORDER = [
    (f"{model}.{graphs}", f"{model}.{plain}")
    for model in MODELS
    for graphs, plain in (("graphs", "plain"), ("untuned_graphs", "untuned_plain"))
]
SIDE_BY_SIDE = [(f"{model}.concurrent", f"{model}.plain") for model in MODELS]

LITTLE_PS = 2_000_000
"""memsets, which are alike"""


@cache
def recording(name: str) -> Profile:
    return load(DATA / f"{name}.xplane.pb.gz")


@cache
def costs(name: str) -> Mapping[str, Cost]:
    (program,) = extract_costs(recording(name)).programs
    return program.costs


def cost_error(graphs: str, plain: str) -> float:
    """The sum of all instructions' differences, as a share of the costs without graphs."""
    ours, truth = costs(graphs), costs(plain)
    assert ours.keys() == truth.keys()
    off = sum(abs(ours[name].us - cost.us) for name, cost in truth.items())
    return off / sum(cost.us for cost in truth.values())


def executions(profile: Profile, order: str) -> list[list[tuple[str, str]]]:
    """(kernel, instruction) of the events of each execution, ordered by a column.

    Memsets are called `Memset 0` inside graphs, and by their kind of memory outside.
    """
    events = profile.events
    found = []
    for number in np.unique(events["execution"]).tolist():
        rows = np.flatnonzero(events["execution"] == number)
        rows = rows[np.argsort(events[order][rows], kind="stable")]
        names = [re.sub(r"^Memset \d+", "Memset", events.text("name", row)) for row in rows]
        labels = [events.text("instruction", row) for row in rows]
        found.append(list(zip(names, labels, strict=True)))
    return found


@pytest.mark.parametrize(("graphs", "plain"), [*IN_ORDER, *SIDE_BY_SIDE])
def test_everything_is_attributed_and_counts_are_exact(graphs: str, plain: str) -> None:
    ours, truth = ops(recording(graphs)), ops(recording(plain))
    assert ours.attributed_share == 1
    assert not recording(graphs).warnings
    counts = [{op.instruction: op.per_step_count for op in one.ops} for one in (ours, truth)]
    assert counts[0] == counts[1]


@pytest.mark.parametrize(("graphs", "plain"), IN_ORDER)
def test_costs_are_those_without_graphs(graphs: str, plain: str) -> None:
    assert cost_error(graphs, plain) <= 0.035


@pytest.mark.parametrize(("graphs", "plain"), IN_ORDER)
def test_each_kernel_has_the_instruction_of_its_twin_without_graphs(
    graphs: str, plain: str
) -> None:
    """These graphs ran in schedule order: their nth kernel is the nth without graphs."""
    every = executions(recording(graphs), "start_ps")
    assert every == [executions(recording(plain), "start_ps")[0]] * len(every)


@pytest.mark.parametrize("model", MODELS)
def test_nodes_have_the_same_instructions_side_by_side_as_in_order(model: str) -> None:
    """The schedule is the same, so its graph has the same nodes, whatever streams they ran on."""
    in_order, side_by_side = (
        [[label for _, label in one] for one in executions(recording(name), "graph_node")]
        for name in (f"{model}.graphs", f"{model}.concurrent")
    )
    assert len(np.unique(recording(f"{model}.concurrent").events["lane"])) > 30
    assert side_by_side == in_order


@pytest.mark.parametrize("way", ["plain", "untuned_plain"])
@pytest.mark.parametrize("model", MODELS)
def test_blind_hidden_labels_are_put_back(model: str, way: str) -> None:
    """As if a graph had run the kernels in any order that dependencies allow, on four streams."""
    for seed in range(3):
        hidden = captured(recording(f"{model}.{way}"), seed, streams=4, executions=2)
        events = attribute(hidden.profile).events
        assert [events.text("instruction", row) for row in range(len(events))] == hidden.truth


def without_numbers(known: Profile) -> Table:
    """The events as if graphs had no numbers of nodes, labels hidden."""
    nothing = np.zeros(len(known.events), np.int32)
    return known.events.replace(instruction=nothing, graph_node=nothing.astype(np.int64))


@pytest.mark.parametrize("name", [graphs for graphs, _ in IN_ORDER])
def test_blind_without_numbers_what_ran_in_order_is_found(name: str) -> None:
    known = recording(name)
    found = attribute(known.with_events(without_numbers(known)))
    assert executions(found, "start_ps") == executions(known, "start_ps")
    assert not found.warnings


@pytest.mark.parametrize("name", [graphs for graphs, _ in SIDE_BY_SIDE])
def test_blind_without_numbers_what_ran_side_by_side_is_right_or_doubted(name: str) -> None:
    """Kernels slow each other down: durations tell less than they would alone."""
    known = recording(name)
    events = known.events
    texts = Texts(events.texts)
    (program,) = set(events["program"].tolist())
    labels, doubts = instructions_in_graphs(
        known.programs[events.texts[program]], without_numbers(known), events["execution"], texts
    )
    assert labels.all()
    ours, truth = Counter[str](), Counter[str]()
    for row, label in enumerate(labels.tolist()):
        ours[texts.values[label]] += events["duration_ps"][row]
        truth[events.text("instruction", row)] += events["duration_ps"][row]
    off = {name for name, ps in truth.items() if abs(ours[name] - ps) > 0.035 * ps + LITTLE_PS}
    assert off <= frozenset[str]().union(*doubts.undecided, *doubts.interchangeable)


def test_the_table_in_the_docs_is_what_the_recordings_say() -> None:
    page = (REPOSITORY / "docs" / "costs.md").read_text(encoding="utf-8")
    for graphs, plain in [*IN_ORDER, *SIDE_BY_SIDE]:
        ours, truth = (sum(cost.us for cost in costs(name).values()) for name in (graphs, plain))
        events = recording(graphs).events
        model, way = graphs.split(".")
        row = (
            f"| {model}, {way.replace('_', ' ')} | {len(costs(graphs))} "
            f"| {len(np.unique(events['lane']))} | {ours / truth - 1:+.1%} "
            f"| {cost_error(graphs, plain):.1%} |"
        )
        assert row in page
