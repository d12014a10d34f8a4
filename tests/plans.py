"""Plans for tests of outputs. All figures are made up, but plausible for a 70B model on H100s."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import log2

from slipstream.results.planning import (
    BOUND,
    CANNOT_WIN,
    INVALID,
    PER_SECOND,
    Candidate,
    Choices,
    Limit,
    MachinePlan,
    Plan,
    PlanCounts,
    ScalingPoint,
)
from slipstream.results.tuning import CRASH, NO_FIT, OK, REFUSED, SAME

TOKENS = 8192
CAPACITY, LIMIT = 80 * 10**9, 72 * 10**9
WEIGHTS = 70e9
PEAK = 989e12
SAVED = {"none": 34.0, "dots": 12.0, "full": 2.2}
AGAIN = {"none": 0.0, "dots": 0.07, "full": 0.33}
TARGET = "llama.py:build"


def made_up_plan(*sizes: int, price: float | None = 2.5) -> Plan:
    """The 70B model on machines of these sizes, by default on 64 H100."""
    machines = tuple(machine_plan(size, price) for size in sizes or (64,))
    points = scaling(machines) if len(machines) > 1 else ()
    made = Plan(TARGET, PER_SECOND, "tokens", machines, points, None, "0.10.2", 512.0, "plan-llama")
    same = tuple(replace(one, best=_same_work(one)) for one in machines)
    return replace(made, strong=scaling(same) if points else ())


def _same_work(machine: MachinePlan) -> Candidate | None:
    """The best candidate for 2M tokens in a step."""
    known = [one for one in machine.candidates if one.status == OK and one.work == 2**21]
    return max(known, key=lambda one: one.work_per_s or 0.0, default=None)


def machine_plan(devices: int, price: float | None = 2.5) -> MachinePlan:
    """All combinations on one machine."""
    candidates = tuple(_candidates(devices))
    ranked = sorted(
        (one for one in candidates if one.status == OK), key=lambda one: -(one.work_per_s or 0)
    )
    best = ranked[0] if ranked else None
    ties = [one.number for one in ranked[:4] if best and (one.low_us or 0) <= (best.high_us or 0)]
    skipped = ("tensor=8 context=8: attention has 8 key heads; expected a divisor of those",)
    return MachinePlan(
        f"{devices}xH100",
        devices,
        candidates,
        best,
        tuple(ties),
        _front(candidates),
        _counts(candidates),
        skipped,
        _reasons(best),
        CAPACITY,
        LIMIT,
        price * devices if price is not None else None,
        "every combination was settled",
    )


def _candidates(devices: int) -> Iterator[Candidate]:
    places = product((1, 2, 4), (1, 2), (1, 2, 4, 8), SAVED, ("cudnn", "xla"), (1, 2, 4, 8))
    number = 0
    for data, context, tensor, remat, attention, batch in places:
        if devices % (data * context * tensor):
            continue
        mesh = {"data": data, "fsdp": devices // (data * context * tensor), "context": context}
        choices = mesh | {
            "tensor": tensor,
            "remat": remat,
            "attention": attention,
            "layers": "scan",
            "batch": batch,
        }
        yield candidate(number, devices, choices)
        number += 1


def candidate(number: int, devices: int, choices: Choices) -> Candidate:
    """One combination: refused, too large, too slow by its bound, or simulated."""
    memory, parts, work = _memory(choices), _parts(devices, choices), _work(choices)
    step = sum(parts.values())
    rate = work / step * 1e6
    made = Candidate(number, choices, OK, work=work, memory_bytes=int(memory))
    if number % 97 == 41:
        why = "XLA: INTERNAL: Failed to compile <kernel> for cuDNN"
        return replace(made, status=CRASH, memory_bytes=None, basis=BOUND, why=why)
    if choices["attention"] == "cudnn" and choices["tensor"] == 8 and choices["context"] == 2:
        why = "build raised ValueError: 8 key heads on 16 devices"
        return replace(made, status=INVALID, memory_bytes=None, basis=BOUND, why=why)
    if memory > LIMIT:
        over = f"needs at least {memory / 1e9:.0f} GB of the {LIMIT / 1e9:.0f} GB that it may use"
        return replace(made, status=NO_FIT, basis=BOUND, why=over)
    if rate < 4000 * devices / 6.4:
        why = f"at most {rate * 1.3:,.0f} tokens/s, even with all communication hidden"
        return replace(
            made,
            status=CANNOT_WIN,
            step_us=step / 1.3,
            work_per_s=rate * 1.3,
            basis=BOUND,
            why=why,
        )
    made = replace(
        made,
        step_us=step,
        low_us=step * 0.96,
        high_us=step * 1.05,
        work_per_s=rate,
        parts_us=parts,
        limits=_limits(parts, step, memory, choices),
    )
    if number % 29 == 7:
        return replace(made, status=SAME, same_program_as=number - 1, why=f"as {number - 1}")
    return made


def _work(choices: Choices) -> float:
    return float(TOKENS * _int(choices, "batch") * _int(choices, "data") * _int(choices, "fsdp"))


def _memory(choices: Choices) -> float:
    shards = _int(choices, "fsdp") * _int(choices, "tensor")
    cut = _int(choices, "context") * _int(choices, "tensor")
    saved = SAVED[str(choices["remat"])] * TOKENS * 8192 * 2 * 80 / 34
    scores = 3.2e9 if choices["attention"] == "xla" else 0.0
    return 14 * WEIGHTS / shards + 4e9 + _int(choices, "batch") * (saved * 3 + scores) / cut


def _parts(devices: int, choices: Choices) -> dict[str, float]:
    work, tensor = _work(choices), _int(choices, "tensor")
    products = 6 * WEIGHTS * work / devices / (PEAK * 0.62) * 1e6 * (1 + 0.035 * (tensor - 1))
    attention = products * (0.11 if choices["attention"] == "cudnn" else 0.31)
    again = (products + attention) * AGAIN[str(choices["remat"])]
    far = 1 + 0.6 * log2(max(devices, 64) / 64)
    gathers = 3 * 2 * WEIGHTS / tensor / 45e9 * 1e6 * (1 - 1 / _int(choices, "fsdp")) * far
    sums = 4 * WEIGHTS / devices / 20e9 * 1e6 * (_int(choices, "data") > 1)
    inside = products * (0.0, 0.05, 0.11, 0.24)[tensor.bit_length() - 1]
    turned = products * 0.04 * (_int(choices, "context") - 1)
    exposed = max(gathers - 0.5 * (products + attention + again), gathers * 0.12)
    return {
        "products": products,
        "attention": attention,
        "memory traffic": products * 0.14,
        "recomputation": again,
        "exposed NVLink": inside + turned,
        "exposed network": exposed + sums,
        "idle": 9_000.0,
    }


def _limits(
    parts: dict[str, float], step: float, memory: float, choices: Choices
) -> tuple[Limit, ...]:
    texts = {
        "products": "matrix products of the layers",
        "attention": f"attention by {choices['attention']}",
        "recomputation": f"remat={choices['remat']} computes layers again",
        "exposed communication": f"all-gathers of weights over fsdp={choices['fsdp']}, InfiniBand",
        "memory traffic": "norms, rotary positions and the optimizer",
    }
    times = parts | {
        "exposed communication": parts["exposed NVLink"] + parts["exposed network"],
    }
    found = [Limit(kind, times[kind] / step, times[kind], text) for kind, text in texts.items()]
    largest = sorted((one for one in found if one.share > 0.02), key=lambda one: -one.share)
    filled = Limit("memory", memory / CAPACITY, None, "state of the optimizer and activations")
    return (*largest, *([filled] if memory > 0.8 * CAPACITY else []))


def _front(candidates: tuple[Candidate, ...]) -> tuple[int, ...]:
    found: list[Candidate] = []
    fitting = [one for one in candidates if one.status == OK]
    for one in sorted(fitting, key=lambda one: (one.memory_bytes or 0, -(one.work_per_s or 0))):
        if not found or (one.work_per_s or 0) > (found[-1].work_per_s or 0):
            found.append(one)
    return tuple(one.number for one in found)


def _counts(candidates: tuple[Candidate, ...]) -> PlanCounts:
    def count(*statuses: str) -> int:
        return sum(one.status in statuses for one in candidates)

    return PlanCounts(
        len(candidates),
        count(NO_FIT, CANNOT_WIN),
        count(OK, SAME),
        count(SAME),
        count(CRASH, INVALID, REFUSED),
    )


def _reasons(best: Candidate | None) -> tuple[str, ...]:
    if best is None:
        return ()
    return (
        "Products take most of the step; the all-gathers of weights are hidden behind them.",
        f"Less remat would be faster, but the activations of batch={best.choices['batch']} would "
        "not fit.",
        "tensor=2 would win if the network were 40% slower.",
    )


def scaling(machines: tuple[MachinePlan, ...]) -> tuple[ScalingPoint, ...]:
    found, first = [], machines[0]
    for one in machines:
        if one.best is None or first.best is None:
            continue
        rate, step = one.best.work_per_s or 0.0, one.best.step_us or 1.0
        base = (first.best.work_per_s or 1.0) / first.devices
        found.append(
            ScalingPoint(
                one.machine,
                one.devices,
                one.best.choices,
                step,
                rate,
                rate / one.devices,
                rate / one.devices / base,
                one.best.exposed_us / step,
                one.price_per_hour / 3600 / rate if one.price_per_hour else None,
                one.best.work == first.best.work,
            )
        )
    return tuple(found)


def _int(choices: Choices, name: str) -> int:
    return int(choices[name] or 0)
