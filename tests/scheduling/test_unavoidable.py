"""Overheads that no order avoids, against the simulated steps of every order there is."""

import random
from itertools import pairwise, permutations

import pytest

from schedules import MACHINE, copied, costs, gather, gathered, kernel, program, to_host
from slipstream.machines.machine import Estimate
from slipstream.profile.program import Program
from slipstream.scheduling.bound import program_bound_us
from slipstream.scheduling.tasks import KERNEL, tasks_of
from slipstream.scheduling.unavoidable import capturable
from slipstream.simulate.engine import graph_of, simulation
from slipstream.simulate.overheads import Overheads
from slipstream.simulate.task_graph import Node

BRANCHES = """
%there (p: f32[8]) -> f32[8] {
  %p = f32[8] parameter(0)
  %gt = (f32[8], f32[16]) all-gather-start(%p), replica_groups={{0,1}}, dimensions={0}, channel_id=1
  %kt = f32[8] custom-call(%p), custom_call_target="f"
  %dt = f32[16] all-gather-done(%gt)
  ROOT %rt = f32[8] custom-call(%kt, %dt), custom_call_target="f"
}

%back (q: f32[8]) -> f32[8] {
  %q = f32[8] parameter(0)
  ROOT %kb = f32[8] negate(%q)
}

%nothing (z: f32[8]) -> f32[8] {
  ROOT %z = f32[8] parameter(0)
}
"""


def drawn_lines(seed: int) -> tuple[dict[str, str], dict[str, set[str]], dict[str, float]]:
    """The instructions of a small program, what each needs, and what they cost."""
    drawn = random.Random(seed)
    lines: dict[str, str] = {}
    needs: dict[str, set[str]] = {}
    values, starts, times = ["a"], [], {"gt": drawn.randint(1, 90), "kt": drawn.randint(1, 9)}
    kinds = ["kernel", "kernel", "gather", "copy", "branch", "product", "negate"]
    for place in range(4):
        name, kind = f"i{place}", drawn.choice(kinds)
        used = {drawn.choice(values), drawn.choice(values[-2:])}
        held = {drawn.choice(starts)} if starts and drawn.random() < 0.2 else set()
        times[name] = drawn.choice((1, 5, 30, 80))
        first, *_ = operands = sorted(used)
        if kind in ("gather", "copy"):
            used = {first}
            lines[name] = (gather if kind == "gather" else to_host)(name, first)
            lines[f"d{name}"] = (gathered if kind == "gather" else copied)(f"d{name}", name)
            needs[f"d{name}"] = {name}
        elif kind == "branch":
            used = {first}
            others = drawn.choice(("%there, %back", "%back, %there", "%nothing, %nothing"))
            lines[name] = (
                f"%{name} = f32[8] conditional(%a, %{first}, %{first}), "
                f"branch_computations={{{others}}}"
            )
        elif kind == "negate":
            used = {first}
            lines[name] = f"%{name} = f32[8] negate(%{first})"
        else:
            target = "__cublas$gemm" if kind == "product" else "f"
            listed = ", ".join(f"%{one}" for one in operands)
            lines[name] = f'%{name} = f32[8] custom-call({listed}), custom_call_target="{target}"'
        if held:
            lines[name] += f", control-predecessors={{%{next(iter(held))}}}"
        needs[name] = (used | held) - {"a"}
        values.append(f"d{name}" if f"d{name}" in lines else name)
        starts += [name] if f"d{name}" in lines else []
    return lines, needs, times


def nodes_of(found: Program) -> dict[str, Node]:
    graph = graph_of(found, MACHINE, {}, frozenset(), Overheads())
    return {one.instruction.name: one for one in graph.nodes}


def orders(needs: dict[str, set[str]]):
    for order in permutations(needs):
        seen: set[str] = set()
        for name in order:
            if not needs[name] <= seen:
                break
            seen.add(name)
        else:
            yield order


def step_us(order, lines, estimates, flags) -> float:
    """Collectives with nothing between their start and done are synchronous, as XLA makes them."""
    made = dict(lines)
    for start, done in pairwise(order):
        if done == f"d{start}" and "all-gather" in lines[start]:
            _, _, control = lines[start].partition(", control-predecessors")
            made[start] = gather(start, lines[start].split("(%")[1].split(")")[0], sync=True)
            made[start] += f", control-predecessors{control}" if control else ""
    found = program(*(made[name] for name in order), others=BRANCHES, flags=flags)
    return wall_us(found, estimates)


def wall_us(found: Program, estimates: dict[str, Estimate]) -> float:
    events = simulation(found, MACHINE, estimates=estimates).profile.events
    if not len(events):
        return 0.0
    ends = events["start_ps"][:] + events["duration_ps"][:]
    return float(ends.max() - events["start_ps"][:].min()) / 1e6


SEEDS = (*range(12), 208, 284, 326, 362, 387)
"""the last: gaps in which collectives run, a kernel behind a start, and reads before any kernel"""
FLAGS = ({"xla_gpu_graph_min_graph_size": "2"}, {"xla_gpu_enable_command_buffer": ""})


@pytest.mark.parametrize("flags", FLAGS, ids=("graphs", "no-graphs"))
@pytest.mark.parametrize("seed", SEEDS)
def test_no_order_is_faster_than_the_bound_with_overheads(seed, flags, monkeypatch):
    lines, needs, times = drawn_lines(seed)
    estimates = costs(random.Random(seed).choice(("measured", "modelled")), **times)
    for name in ("negate", "rt", "kb", *lines):
        estimates.setdefault(name, next(iter(costs(negate=3).values())))
    listed = program(*lines.values(), others=BRANCHES, flags=flags)
    monkeypatch.setattr("slipstream.scheduling.bound.costing", lambda *_: estimates)
    bound = program_bound_us(listed, MACHINE, costs={})
    steps = [step_us(order, lines, estimates, flags) for order in orders(needs)]
    assert bound <= min(steps) + 1e-3


def test_a_branch_waits_for_the_host_in_every_order(monkeypatch):
    """The bound of a chain is its only order, with what the host needs to read the branch."""
    estimates = costs(k=30, kb=20, end=10)
    found = program(
        '%k = f32[8] custom-call(%a), custom_call_target="f"',
        "%c = f32[8] conditional(%a, %k, %k), branch_computations={%back, %back}",
        '%end = f32[8] custom-call(%c), custom_call_target="f"',
        others=BRANCHES,
    )
    monkeypatch.setattr("slipstream.scheduling.bound.costing", lambda *_: estimates)
    bound = program_bound_us(found, MACHINE, costs={})
    step = wall_us(found, estimates)
    assert 60 + Overheads().read_us < bound <= step


def test_kernels_that_collectives_part_are_in_no_graph():
    """A gather parts two kernels; each of them may be in one with the others."""
    found = program(
        kernel("k0", "a"), kernel("k1", "k0"), kernel("k2", "k1"),
        kernel("p0", "a"), gather("g", "p0"), gathered("d", "g"), kernel("p1", "d"),
    )  # fmt: skip
    tasks = tasks_of(found, found.entry, nodes_of(found), {})
    commands = [task for task in tasks.heavy if tasks.kinds[task] == KERNEL]
    names = {tasks.names[task] for task in capturable(tasks, commands, 4)}
    assert names == {"k0", "k1", "k2", "p0", "p1"}
    names = {tasks.names[task] for task in capturable(tasks, commands, 5)}
    assert names == {"k0", "k1", "k2"}
