"""A plan's page: what is written before any script runs, for ordinary and for odd plans."""

from __future__ import annotations

import json
import re
from dataclasses import replace

from plans import CAPACITY, LIMIT, made_up_plan
from slipstream.outputs.html.plan import plan_page, write_plan_page
from slipstream.results.planning import (
    BOUND,
    MEASURED,
    PER_SECOND,
    TIME,
    Candidate,
    MachinePlan,
    Plan,
    PlanCounts,
)
from slipstream.results.tuning import NO_FIT, OK

SECTIONS = ["best", "choices", "front", "steps", "scaling", "candidates", "search"]


def sections(text: str) -> list[str]:
    return re.findall(r'<section id="([^"]+)"', text)


def data(text: str) -> dict:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text)
    assert found is not None
    return json.loads(found[1])


def plain(text: str) -> str:
    """What a reader sees of the markup."""
    body = text[text.index("<body") : text.index('<script type="application/json"')]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body))


def one_machine(*candidates: Candidate, best: Candidate | None = None, **more) -> Plan:
    machine = MachinePlan(
        "8xH100", 8, candidates, best, (), (), PlanCounts(len(candidates)), **more
    )
    return Plan("train.py:build", PER_SECOND, "tokens", (machine,))


def test_sections_of_one_and_of_several_machines():
    assert sections(plan_page(made_up_plan(64))) == [s for s in SECTIONS if s != "scaling"]
    text = plan_page(made_up_plan(64, 512))
    assert sections(text) == SECTIONS
    assert re.findall(r'class="machine" data-machine="(\d)"( hidden)?', text) == [
        ("0", ""),
        ("1", " hidden"),
    ]


def test_the_first_machine_shown_is_one_that_can_run_something():
    text = plan_page(made_up_plan(8, 64))
    assert re.findall(r'data-machine="(\d)"( hidden)?', text) == [("0", " hidden"), ("1", "")]
    assert data(text)["first"] == 1


def test_the_recommendation():
    plan = made_up_plan(64)
    said = plain(plan_page(plan))
    best = plan.machines[0].best
    assert best is not None
    assert f"Candidate {best.number} is the best of 141 that fit (simulated, nothing ran)." in said
    assert "fsdp 64 context 1 tensor 1 remat dots attention cudnn" in said
    assert "Throughput 67,800 tokens/s 1,060 per device" in said
    assert "Step 30.9 s 29.7 … 32.5, 90% band" in said
    assert "Work in a step 2.1M tokens over 64 devices" in said
    assert "Cost $0.66 per million tokens, at $160 an hour" in said
    assert "64.8 GB of 72 GB (7.21 GB free) · margin 10% of 80 GB" in said
    assert "Why Products take most of the step" in said
    assert "A tie with 3 other candidates: 35 34 226 can't be told from it" in said
    assert 'build(devices, data=1, fsdp=64, context=1, tensor=1, remat="dots"' in said
    said = plain(plan_page(replace(plan, enums={"remat": "Remat"})))
    assert 'tensor=1, remat=Remat.dots, attention="cudnn"' in said


def test_scaling():
    plan = made_up_plan(64, 128, 512)
    text = plan_page(plan)
    said = plain(text)
    assert "From 64 to 512 devices, the best layout keeps 92% of the throughput" in said
    reasons = plain(plan_page(replace(plan, reasons=("the network takes over",))))
    assert "The best candidate on each machine. the network takes over" in reasons
    assert "512xH100 500,000 976 92% 33.6 s 8.1% $0.71 per million tokens weak" in said
    assert "512xH100 329,000 644 61% 6.36 s 31.3% $1.08 per million tokens strong" in said
    assert "<b>fsdp 128</b>" in text  # what changed from the machine above
    shown = data(text)
    assert [one["devices"] for one in shown["scaling"]] == [64, 128, 512]
    assert {one["gpu"] for one in shown["strong"]} == {"H100"}
    # If every best step does the same work, there is nothing to add.
    same = tuple(replace(one, same_work=True) for one in plan.scaling)
    assert data(plan_page(replace(plan, scaling=same)))["strong"] == []


def test_how_sure():
    one, other = (Candidate(n, {"batch": n}, OK, 1.0, work_per_s=1.0) for n in (0, 1))
    plan = one_machine(one, other, best=one)
    (only,) = plan.machines

    def said(*ties: int) -> str:
        shown = plain(plan_page(replace(plan, machines=(replace(only, ties=ties),))))
        return shown[shown.index("How sure") : shown.index("Use it")].removeprefix("How sure ")

    assert said() == "No other candidate can be as good, given the errors of both. "
    assert said(0, 1).startswith("A tie with 1 other candidate: 1 can't be told from it")


def test_a_command_with_places_and_flags():
    one = Candidate(0, {"size": 4, "kind": "a"}, OK, 10.0, flags={"xla_a": "1", "xla_b": "x"})
    plan = replace(one_machine(one, best=one), target="python train.py --size={size} --k {kind}")
    said = plain(plan_page(plan))
    assert "python train.py --size=4 --k a Copy" in said
    assert 'export XLA_FLAGS="--xla_a=1 --xla_b=x"' in said


def test_time_for_a_global_batch():
    one = Candidate(0, {"batch": 4}, OK, 2e6, work=4096, work_per_s=2048, accumulate=8)
    plan = replace(one_machine(one, best=one), objective=TIME, global_batch=32768.0)
    said = plain(plan_page(plan))
    assert "Global batch 16 s 32,800 tokens, 8 steps" in said


def test_measured():
    one = Candidate(
        0, {"batch": 4}, OK, 100.0, 98.0, 103.0, basis=MEASURED, predicted_us=95.0, work_per_s=1.0
    )
    said = plain(plan_page(one_machine(one, best=one)))
    assert "100 µs 98 … 103, 95% interval; predicted 95 µs" in said


def test_predictions_next_to_measurements():
    steps = [(100.0, 95.0), (110.0, 121.0), (120.0, 108.0)]
    ran = [
        Candidate(at, {"batch": at}, OK, us, us - 1, us + 1, 1.0, 1e6 / us, basis=MEASURED)
        for at, (us, _) in enumerate(steps)
    ]
    ran = [replace(one, predicted_us=steps[one.number][1]) for one in ran]
    text = plan_page(one_machine(*ran, Candidate(3, {"batch": 3}, OK, 99.0), best=ran[0]))
    assert "measured" in sections(text)
    said = plain(text)
    # 95, 121 and 108 µs: of three pairs, the last two are in the wrong order.
    assert "Predicted steps are 8.3% off on average, at most 10.0%." in said
    assert "The predicted order is right for 2 of 3 pairs." in said
    assert "1 9,090 110 µs 109 µs … 111 µs 121 µs +10.0% batch 1" in said
    assert "measured" not in sections(plan_page(made_up_plan(64)))


def test_nothing_fits():
    small = Candidate(0, {"batch": 1}, NO_FIT, memory_bytes=90 * 10**9, basis=BOUND)
    large = Candidate(1, {"batch": 2}, NO_FIT, memory_bytes=120 * 10**9, basis=BOUND)
    plan = one_machine(
        small, large, memory_capacity_bytes=CAPACITY, memory_limit_bytes=LIMIT, reasons=("Why so.",)
    )
    text = plan_page(plan)
    said = plain(text)
    assert "No combination can be recommended on 8xH100. 2 × does not fit." in said
    assert "The smallest is candidate 0 : at least 90 GB of 72 GB." in said
    assert "Why so." in said
    assert sections(text) == ["best", "choices", "front", "candidates", "search"]


def test_one_candidate_without_figures():
    one = Candidate(0, {"batch": 1}, OK)
    text = plan_page(one_machine(one, best=one))
    assert sections(text) == ["best", "candidates", "search"]
    said = plain(text)
    assert "Candidate 0 is the only one" in said
    assert "The memory that it needs is not known." in said
    assert "There is nothing to compare it with." in said
    assert "None" not in said and "nan" not in said


def test_no_candidates_and_no_machines():
    text = plan_page(one_machine(stopped_because="not finished"))
    assert sections(text) == ["best", "search"]
    assert "No combination was tried on 8xH100 (not finished)." in plain(text)
    empty = Plan("train.py:build", PER_SECOND, "tokens", ())
    assert "No machine was planned for." in plan_page(empty)


def test_the_data():
    plan = made_up_plan(64)
    machine = plan.machines[0]
    found = data(plan_page(plan))
    assert found["names"] == list(machine.candidates[0].choices)
    assert found["parts"][:3] == ["products", "attention", "memory traffic"]
    (shown,) = found["machines"]
    assert shown["values"][1] == ["1", "2", "4", "8", "16", "32", "64"]
    assert shown["best"] == machine.best.number == shown["candidates"][0]["number"]
    rates = [one["rate"] for one in shown["candidates"] if one["fits"]]
    assert rates == sorted(rates, reverse=True) and len(shown["candidates"]) == 576
    first = shown["candidates"][0]
    texts = {n: shown["values"][i][first["values"][i]] for i, n in enumerate(found["names"])}
    assert texts == {name: str(value) for name, value in machine.best.choices.items()}


def test_values_keep_their_order_and_type():
    choices = [{"a": None, "b": True}, {"a": 8, "b": False}, {"a": 2, "b": 1}, {"a": 2.5}]
    candidates = [Candidate(at, one, OK) for at, one in enumerate(choices)]
    (shown,) = data(plan_page(one_machine(*candidates)))["machines"]
    assert shown["values"] == [["None", "2", "2.5", "8"], ["True", "False", "1"]]
    assert [one["values"] for one in shown["candidates"]] == [[0, 0], [3, 1], [1, 2], [2, -1]]


def test_texts_are_escaped_and_unknown_numbers_left_out():
    bad = "</script><b>x</b>"
    one = Candidate(0, {bad: bad}, OK, float("nan"), work_per_s=float("inf"), why=bad)
    plan = replace(one_machine(one, best=one, reasons=(bad,), skipped=(bad,)), target=bad)
    text = plan_page(plan)
    assert "<b>x</b>" not in text
    (found,) = data(text)["machines"][0]["candidates"]
    assert found["why"] == bad and "us" not in found and "rate" not in found


def test_the_file(tmp_path):
    path = tmp_path / "plan.html"
    write_plan_page(made_up_plan(64), path)
    assert path.read_text(encoding="utf-8") == plan_page(made_up_plan(64))
