"""The bound, against every order there is."""

import random
from itertools import permutations

import pytest

from schedules import MACHINE, costs, gather, gathered, kernel, program
from slipstream.machines.topology import machine
from slipstream.scheduling.bound import bound_ns, program_bound_us
from slipstream.scheduling.schedule import searched
from slipstream.scheduling.sequence import sequence_of
from slipstream.simulate.prediction import predict


def all_sequences(tasks):
    """Every order of kernels and starts that their dependencies allow, in both ways to list it."""
    for order in permutations(tasks.heavy):
        seen: set[int] = set()
        for task in order:
            if not seen.issuperset(tasks.after[task]):
                break
            seen.add(task)
        else:
            begins = {task: place for place, task in enumerate(order)}
            yield sequence_of(tasks, begins, early=False, at_once=1)
            yield sequence_of(tasks, begins, early=True, at_once=1)


def layered(seed: int, basis: str = "measured"):
    """Three gathers and four kernels, of random lengths, with random needs."""
    drawn = random.Random(seed)
    lines, values, times = [], ["a"], {}
    for place in range(3):
        lines += [gather(f"g{place}", drawn.choice(values)), gathered(f"d{place}", f"g{place}")]
        needs = {drawn.choice(values), f"d{drawn.randint(0, place)}"}
        operands = ", ".join(f"%{name}" for name in sorted(needs))
        lines.append(f'%k{place} = f32[8] custom-call({operands}), custom_call_target="f"')
        values.append(f"k{place}")
        times |= {f"g{place}": drawn.randint(5, 60), f"k{place}": drawn.randint(5, 60)}
    lines.append(kernel("end", values[-1], root=True))
    return program(*lines), costs(basis, **times, end=drawn.randint(5, 60))


@pytest.mark.parametrize("basis", ["measured", "modelled"])  # modelled times slow each other
@pytest.mark.parametrize("seed", range(8))
def test_no_order_is_faster_than_the_bound_and_the_search_finds_the_fastest(seed, basis):
    found, estimates = layered(seed, basis)
    result = searched(found, MACHINE, estimates=estimates, spare_bytes=10**9, seconds=5)
    (one,) = result.computations
    spans = [one.trial.span_ns(sequence) for sequence in all_sequences(one.tasks)]
    assert bound_ns(one.tasks) <= min(spans)
    assert one.found.ns <= one.xla_ns
    assert one.found.ns <= min(spans) * 1.02


def test_the_bound_of_a_whole_program_is_below_its_simulation(late):
    found, _ = late
    where = machine("2xH200")
    assert 0 < program_bound_us(found, where) <= predict(found, where).step_us


def test_what_hiding_costs_is_part_of_the_bound():
    """A product and a gather that can only run beside each other, or one after the other."""
    found = program(
        gather("g", "a"),
        'ROOT %k = f32[8] custom-call(%a), custom_call_target="__cublas$gemm"',
        gathered("d", "g"),
    )
    bounds = []
    for basis in ("measured", "modelled"):
        result = searched(found, MACHINE, estimates=costs(basis, g=50, k=100), seconds=1)
        (one,) = result.computations
        bounds.append(bound_ns(one.tasks))
        assert bounds[-1] <= one.found.ns
    assert bounds[1] > bounds[0]
