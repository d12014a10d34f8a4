"""`slipstream plan` as text and JSON, from plans of several shapes."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from plans import made_up_plan
from slipstream.outputs.json import dumps
from slipstream.outputs.terminal.compiled.plan import candidate_line, plan_json, render_plan
from slipstream.plan.report.ranking import ranked
from slipstream.plan.report.scaling import scaling, scaling_reasons, strong_scaling
from slipstream.results.planning import (
    MEASURED,
    PER_DEVICE,
    PER_DOLLAR,
    TIME,
    Candidate,
    Limit,
    MachinePlan,
    Plan,
    PlanCounts,
)
from slipstream.results.tuning import CRASH, OK

DOCS = Path(__file__).parents[4] / "docs" / "json.md"
CONTRACT = {
    "machine", "objective", "unit", "best", "candidates", "pareto", "scaling", "stopped_because",
}  # fmt: skip
OF_A_CANDIDATE = {
    "number", "choices", "status", "step_us", "low_us", "high_us", "work_per_s", "memory_bytes",
    "basis", "limits", "same_program_as", "why",
}  # fmt: skip


def planned(*sizes: int) -> Plan:
    """A made-up plan, with its ranking and scaling as `slipstream plan` computes them."""
    plan = made_up_plan(*sizes)
    machines = tuple(ranked(one, plan.objective, plan.unit) for one in plan.machines)
    return replace(
        plan,
        machines=machines,
        scaling=scaling(machines),
        strong=strong_scaling(machines),
        reasons=scaling_reasons(machines, plan.unit),
    )


ONE = planned(64)
MANY = planned(8, 64, 128, 512, 1024)


def small_plan(*candidates: Candidate, skipped: tuple[str, ...] = ()) -> Plan:
    machine = MachinePlan(
        "8xH100",
        8,
        candidates,
        None,
        (),
        (),
        PlanCounts(len(candidates), compiled=len(candidates)),
        skipped=skipped,
        memory_capacity_bytes=80 * 10**9,
        memory_limit_bytes=73 * 10**9,
        price_per_hour=20.0,
        stopped_because="every combination was settled",
    )
    plan = Plan("gpt.py:build", "work/s", "tokens", (machine,), jaxlib="0.10.2")
    return replace(plan, machines=(ranked(machine, plan.objective, plan.unit),))


def candidate(number: int, step_ms: float, exposed: float, **choices: int | str) -> Candidate:
    step = step_ms * 1e3
    return Candidate(
        number,
        choices,
        OK,
        step_us=step,
        low_us=step * 0.95,
        high_us=step * 1.06,
        work=131_072,
        work_per_s=131_072 / step * 1e6,
        memory_bytes=40 * 10**9 + number * 10**9,
        limits=(
            Limit("products", 1 - exposed, step * (1 - exposed), "matrix products"),
            Limit(
                "exposed communication",
                exposed,
                step * exposed,
                "all-gathers of weights (up, gate +4) over NVLink, in a loop × 32",
            ),
            Limit("memory", 0.5, None, "40 GB of 80 GB"),
        ),
        parts_us={"products": step * (1 - exposed), "exposed NVLink": step * exposed},
    )


FIRST = candidate(0, 400, 0.1, fsdp=8, tensor=1, remat="full")
SECOND = candidate(1, 404, 0.1, fsdp=8, tensor=1, remat="dots")
THIRD = candidate(2, 500, 0.3, fsdp=4, tensor=2, remat="full")


def test_a_whole_plan() -> None:
    crash = Candidate(3, {"fsdp": 2, "tensor": 4, "remat": "full"}, CRASH, why="signal 11")
    plan = small_plan(FIRST, SECOND, THIRD, crash, skipped=("tensor=3: 8 devices",))
    assert (
        render_plan(plan, 80).plain
        == """\
gpt.py:build · 8xH100 · most tokens/s · jaxlib 0.10.2

328,000 tokens/s · step 400 ms (380 … 424), simulated · memory 40 GB of 73 GB
  fsdp=8 tensor=1 remat=full
- its step: 90% products
- exposed communication: 10% all-gathers of weights (up, gate +4) over NVLink,
  in a loop × 32
- remat=dots takes 1.0% longer (a tie)
- fsdp=4, tensor=2 takes 25.0% longer: exposed NVLink +28%, products −3%
- fsdp=4, tensor=2 would win if 67% of its exposed communication were hidden,
  and the best stayed as it is
- 1 other candidate is too close to tell apart from the best without measuring

#     tokens/s    step  memory  exposed  fsdp  tensor  remat
0  =   328,000  400 ms   40 GB      10%  8     1       full
1  =   324,000  404 ms   41 GB      10%  8     1       dots
2      262,000  500 ms   42 GB      30%  4     2       full
= can't be told apart from the best

4 combinations: 4 compiled; stopped: every combination was settled
  1 crashed: signal 11 (fsdp=2 tensor=4 remat=full)
  skipped tensor=3: 8 devices"""
    )


@pytest.mark.parametrize("width", [72, 80, 120])
@pytest.mark.parametrize("plan", [ONE, MANY, planned(8)], ids=["one", "many", "nothing fits"])
def test_it_fits_a_terminal(plan: Plan, width: int) -> None:
    for top in (None, 1, 1000):
        lines = render_plan(plan, width, top).plain.splitlines()
        assert max(map(len, lines)) <= width


def test_long_names_of_choices_are_cut() -> None:
    name, value = "number_of_pipeline_microbatches_of_each_device", "a_policy_with_a_very_long_name"
    rows = [
        replace(one, choices={name: value, f"{name}_2": at})
        for at, one in enumerate((FIRST, THIRD))
    ]
    lines = render_plan(small_plan(*rows), 80).plain.splitlines()
    table = next(at for at, line in enumerate(lines) if line.startswith("#"))
    assert max(map(len, lines[table:])) <= 80
    assert "the best" in lines[table + 1]


def test_what_differs_is_shown_where_all_choices_do_not_fit() -> None:
    shown = render_plan(ONE, 80).plain
    assert "differs in" in shown
    assert re.search(r"^ 35 .* fsdp=32 tensor=2 batch=8$", shown, re.MULTILINE)
    wide = render_plan(ONE, 120).plain
    assert re.search(r"exposed  data  fsdp  context  tensor  remat  attention  batch$", wide, re.M)


def test_nothing_fits() -> None:
    shown = render_plan(planned(8), 80).plain
    assert shown.splitlines()[2] == "no candidate can be run"
    assert "- nothing fits: the least that a candidate needs is 127 GB of 72 GB" in shown
    assert "356 do not fit: the smallest needs 127 GB of 72 GB" in shown


def test_one_candidate() -> None:
    shown = render_plan(small_plan(FIRST), 80).plain
    assert "tokens/s    step" not in shown, "a table of one row"
    assert shown.splitlines()[3] == "  fsdp=8 tensor=1 remat=full"


def test_what_was_not_tried_is_counted() -> None:
    plan = small_plan(FIRST)
    machine = replace(
        plan.machines[0],
        counts=PlanCounts(1200, bounded=3, compiled=1),
        stopped_because="the budget of 5 s is spent",
    )
    assert render_plan(replace(plan, machines=(machine,))).plain.endswith(
        "1,200 combinations: 3 bounded away, 1 compiled, 1,199 not tried; stopped: the\n"
        "budget of 5 s is spent"
    )


def test_objectives() -> None:
    def first(objective: str, **more: object) -> str:
        plan = replace(small_plan(replace(FIRST, accumulate=4)), objective=objective, **more)  # type: ignore[arg-type]
        heading, _, verdict, *_ = render_plan(plan, 100).plain.splitlines()
        return f"{heading.split(' · ')[2]}: {verdict.split(' · ')[0]}"

    assert first(PER_DEVICE) == "most tokens/s/device: 41,000 tokens/s/device"
    assert first(PER_DOLLAR) == "most tokens/$: 59M tokens/$"
    assert first(TIME, global_batch=524_288.0) == "least time for 524,000 tokens: 1.6 s"


def test_a_measured_candidate_and_its_flags() -> None:
    best = replace(
        FIRST,
        basis=MEASURED,
        predicted_us=390e3,
        flags={"xla_gpu_enable_x": "true"},
        flags_step_us=380e3,
        accumulate=2,
        accumulator_bytes=2 * 10**9,
    )
    shown = render_plan(small_plan(best, THIRD), 80).plain
    assert "step 400 ms (380 … 424), measured (predicted 390 ms)" in shown
    assert "  with these flags, the step takes 380 ms:\n  --xla_gpu_enable_x=true" in shown
    assert (
        "  gradients of 2 steps are added up for one global batch, in 2 GB of that memory" in shown
    )
    assert re.search(r"measured .*simulated", shown, re.DOTALL)


def test_several_machines() -> None:
    lines = render_plan(MANY, 80).plain.splitlines()
    assert lines[0] == "llama.py:build · 5 machines · most tokens/s · jaxlib 0.10.2"
    assert lines[2].split() == [
        "machine", "tokens/s", "a", "device", "efficiency", "step", "exposed", "$/M", "tokens"
    ]  # fmt: skip
    assert [line for line in lines if line in ("8xH100", "64xH100", "1024xH100")]
    assert "with the same work in a step (strong scaling)" in lines


def test_one_line_while_the_search_runs() -> None:
    line = candidate_line(FIRST, "tokens")
    assert line.split() == ["328,000", "tokens/s", "fsdp=8", "tensor=1", "remat=full"]
    failed = replace(FIRST, status=CRASH, why="code 3")
    assert candidate_line(failed, "tokens").endswith("crash  fsdp=8 tensor=1 remat=full: code 3")
    assert len(candidate_line(failed, "tokens", 30)) == 30


def test_names_from_files_can_not_steer_the_terminal() -> None:
    bad = replace(FIRST, choices={"remat": "\x1b[31mred"}, why="\x1b]0;title\x07")
    assert "\x1b" not in render_plan(small_plan(bad, THIRD), 80).plain


# JSON.


@pytest.mark.parametrize("plan", [ONE, MANY, planned(8), small_plan(FIRST)])
def test_the_json_keeps_its_contract(plan: Plan) -> None:
    found = json.loads(dumps(plan_json(plan)))
    assert set(found) >= CONTRACT
    assert all(set(one) >= OF_A_CANDIDATE for one in found["candidates"])
    assert found["best"] is None or set(found["best"]) >= OF_A_CANDIDATE
    assert [one["machine"] for one in found["plans"]] == (
        [one.machine for one in plan.machines] if len(plan.machines) > 1 else []
    )
    assert len(found["candidates"]) == len(plan.machines[0].candidates)
    assert all(set(found["plans"][0]) <= set(found) for _ in found["plans"])


def test_no_key_depends_on_the_plan() -> None:
    assert set(plan_json(ONE)) == set(plan_json(planned(8))) == set(plan_json(MANY))


def test_numbers_are_finite() -> None:
    bad = replace(FIRST, work_per_s=math.inf, low_us=math.nan)
    found = json.loads(dumps(plan_json(small_plan(bad))))
    assert (found["candidates"][0]["work_per_s"], found["candidates"][0]["low_us"]) == (None, None)


def test_every_key_is_documented() -> None:
    section = DOCS.read_text(encoding="utf-8").partition("## plan --json\n")[2]
    documented = set(re.findall(r"`(\w+)`", section.partition("\n## ")[0]))
    plan = plan_json(MANY)
    shown = set(plan) | set(plan["counts"]) | set(plan["plans"][0])
    shown |= {key for point in plan["scaling"] for key in point}
    for one in plan["plans"][1]["candidates"]:
        shown |= set(one) | {key for limit in one["limits"] for key in limit}
    assert shown <= documented
