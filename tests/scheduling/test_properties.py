"""Whatever the program: orders keep what they must, and judging a move is exact."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedules import MACHINE, copied, costs, gather, gathered, program, to_host
from slipstream.compiler.order import Order
from slipstream.errors import BadInput
from slipstream.scheduling.memory import buffers_of, peak_bytes
from slipstream.scheduling.moves import Moves
from slipstream.scheduling.schedule import searched
from slipstream.scheduling.sequence import apart, sequence_of
from slipstream.scheduling.tasks import KERNEL, LIGHT, START, Tasks, is_topological, tasks_of
from slipstream.scheduling.trial import Trial
from slipstream.simulate.engine import graph_of
from slipstream.simulate.overheads import Overheads
from slipstream.simulate.streams import COMPUTE, OVERLAP_LIMIT
from slipstream.simulate.task_graph import READ

SEEDS = st.integers(0, 2**32 - 1)
FEW = settings(max_examples=15, deadline=None)


def drawn_program(seed: int, size: int = 12):
    """Kernels, gathers, copies and bitcasts with random operands and control dependencies."""
    drawn = random.Random(seed)
    lines, values, times, flying = [], ["a"], {}, []
    for place in range(size):
        name, kind = f"i{place}", drawn.choice(("kernel", "kernel", "gather", "copy", "bitcast"))
        operand = drawn.choice(values)
        after = drawn.choice(values)
        held = f", control-predecessors={{%{after}}}" if drawn.random() < 0.3 else ""
        times[name] = drawn.randint(1, 60)
        if kind == "kernel":
            other = drawn.choice(values)
            call = f'custom-call(%{operand}, %{other}), custom_call_target="f"'
            lines.append(f"%{name} = f32[8] {call}{held}")
            values.append(name)
        elif kind == "bitcast":
            lines.append(f"%{name} = f32[8] bitcast(%{operand}){held}")
            values.append(name)
        else:
            start = gather if kind == "gather" else to_host
            lines.append(f"{start(name, operand)}{held}")
            flying.append((kind, name))
        while flying and (drawn.random() < 0.5 or place == size - 1):
            kind, start = flying.pop(drawn.randrange(len(flying)))
            done = gathered if kind == "gather" else copied
            lines.append(done(f"d_{start}", start))
            values.append(f"d_{start}")
    operands = ", ".join(f"%{one}" for one in values[-4:])
    lines.append(f'ROOT %end = f32[8] custom-call({operands}), custom_call_target="f"')
    flags = {OVERLAP_LIMIT: str(drawn.choice((1, 1, 2)))}
    basis = drawn.choice(("measured", "modelled"))  # modelled times slow each other
    return program(*lines, flags=flags), costs(basis, **times, end=5), int(flags[OVERLAP_LIMIT])


def tasks_and_trial(seed: int, size: int = 12) -> tuple[Tasks, Trial]:
    found, estimates, _ = drawn_program(seed, size)
    overheads = Overheads()
    graph = graph_of(found, MACHINE, estimates, frozenset(), overheads)
    nodes = {one.instruction.name: one for one in graph.nodes if one.kind != READ}
    tasks = tasks_of(found, found.entry, nodes, {})
    return tasks, Trial(tasks, graph, nodes, {}, overheads)


@FEW
@given(SEEDS)
def test_an_order_that_is_found_can_be_compiled_and_is_never_slower(seed):
    found, estimates, _ = drawn_program(seed)
    spare = random.Random(seed).choice((0, 0, 64, 10**6))
    result = searched(found, MACHINE, estimates=estimates, spare_bytes=spare, seconds=0.1)
    result.order.check(found)  # data, control, hazards, every instruction once
    (one,) = result.computations
    assert is_topological(one.tasks, one.found.sequence)
    assert one.found.ns <= one.xla_ns
    assert one.found.ns == one.trial.span_ns(one.found.sequence)
    buffers = buffers_of(one.tasks, found)
    assert peak_bytes(buffers, one.found.sequence) <= spare + peak_bytes(
        buffers, range(len(one.tasks))
    )


@FEW
@given(SEEDS)
def test_sequences_of_any_times_keep_dependencies(seed):
    tasks, _ = tasks_and_trial(seed)
    drawn = random.Random(seed)
    begins: dict[int, int] = {}
    for task in tasks.heavy:
        ready = max((begins[one] + tasks.ns[one] for one in tasks.after[task]), default=0)
        begins[task] = ready + drawn.randint(0, 50_000)
    for early in (True, False):
        for frees in (True, False):
            for at_once in (1, 2):
                found = sequence_of(tasks, begins, early=early, frees=frees, at_once=at_once)
                assert is_topological(tasks, found)
                assert is_topological(tasks, apart(tasks, found, at_once))


@FEW
@given(SEEDS)
def test_no_more_collectives_fly_than_may_beside_one_that_xla_makes_synchronous(seed):
    found, estimates, at_once = drawn_program(seed)
    result = searched(found, MACHINE, estimates=estimates, spare_bytes=10**6, seconds=0.1)
    (one,) = result.computations
    begins, ends = [], []
    for task, *_, begin, end in one.trial.times(one.found.sequence):
        if task in one.tasks.collectives and end > begin:
            begins.append(begin)
            ends.append(end)
    for time in begins:
        assert sum(b <= time < e for b, e in zip(begins, ends, strict=True)) <= at_once


@FEW
@given(SEEDS, st.integers(5, 150))
def test_a_window_takes_exactly_as_long_as_the_whole_order_with_it(seed, size):
    tasks, trial = tasks_and_trial(seed, size)
    if START not in tasks.kinds or KERNEL not in tasks.kinds:
        return
    drawn = random.Random(seed)
    moves = Moves(tasks, trial, range(len(tasks)), seed)
    trial.know(moves.order)
    for _ in range(60):
        moved = moves.drawn_move()
        if moved is None:
            continue
        changed = moves.after(*moved)
        assert is_topological(tasks, changed)
        assert trial.span_of_window_ns(*moved) == trial.span_ns(changed)
        if drawn.random() < 0.5:
            trial.keep_window()
            moves.go(*moved)
            assert moves.order == changed
            assert trial.span_of_window_ns(0, changed[:1]) == trial.span_ns(changed)


def synchronous(tasks: Tasks, order: list[int]) -> set[int]:
    """Collectives between whose start and done nothing but collectives is launched."""
    done_of = {start: done for done, start in tasks.start_of.items()}
    ignored = {task for task, kind in enumerate(tasks.kinds) if kind == LIGHT}
    ignored |= tasks.collectives | {done_of[start] for start in tasks.collectives}
    return {
        start
        for start in tasks.collectives
        if ignored.issuperset(order[order.index(start) : order.index(done_of[start])])
    }


@pytest.mark.parametrize("size", [12, 60, 400])
def test_moves_that_make_collectives_outside_their_window_synchronous_are_judged_exactly(size):
    changed = 0
    for seed in range(6):
        tasks, trial = tasks_and_trial(seed, size)
        moves = Moves(tasks, trial, range(len(tasks)), seed)
        trial.know(moves.order)
        known = synchronous(tasks, moves.order)
        for number in range(300):
            moved = moves.drawn_move()
            if moved is None:
                continue
            after = moves.after(*moved)
            now = synchronous(tasks, after)
            streams = {task: stream for task, stream, *_ in trial.times(after)}
            assert {one for one in tasks.collectives if streams[one] == COMPUTE} == now
            assert trial.span_of_window_ns(*moved) == trial.span_ns(after)
            changed += bool((known ^ now) - set(moved[1]))
            if number % 2:
                trial.keep_window()
                moves.go(*moved)
                known = now
                # What is known of all others is right, too.
                assert trial.span_of_window_ns(0, after[:1]) == trial.span_ns(after)
    assert changed > 5


def test_a_long_order_is_taken_up_again_behind_the_window():
    """And not run to its end: what follows is known."""
    tasks, trial = tasks_and_trial(7, 2000)
    moves = Moves(tasks, trial, range(len(tasks)), 1)
    trial.know(moves.order)
    taken_up = tried = 0
    while tried < 40:
        moved = moves.drawn_move()
        if moved is None or len(moved[1]) > 50:
            continue
        tried += 1
        assert trial.span_of_window_ns(*moved) == trial.span_ns(moves.after(*moved))
        taken_up += trial.is_taken_up
    assert taken_up > tried / 2


@pytest.mark.parametrize("wrong", ["twice", "missing", "cycle"])
def test_orders_of_random_programs_that_are_damaged_are_refused(wrong):
    found, _, _ = drawn_program(3)
    names = [one.name for one in found.entry.instructions]
    damaged = {
        "twice": [*names[:-1], names[0]],
        "missing": names[:-1],
        "cycle": names[::-1],
    }[wrong]
    with pytest.raises(BadInput, match="slipstream schedule"):
        Order({"main": tuple(damaged)}, None).check(found)
