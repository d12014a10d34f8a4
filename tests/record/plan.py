"""Three models, at least 24 combinations each: planned without a GPU, then all of them measured.

    python tests/record/plan.py --plan FOLDER                  # needs no GPU; FOLDER/gpt, …
    python tests/record/plan.py --measure FOLDER OUT.json      # on one H200
    python tests/record/plan.py --table OUT.json
    python tests/record/plan.py --read OUT.json tests/data/accuracy/plans.json

`--only gpt` takes one of the models (gpt, llama, moe). Measuring is resumed where it was
interrupted, and each model is written to OUT.json as soon as it is done. Results of plans that were
bounded away have no prediction but the bound; they are measured too, and listed.

36 combinations of the GPT take three minutes on an H200, compiles included.
"""

import argparse
import datetime
import json
import os
from pathlib import Path

from slipstream.outputs.terminal.compiled.plan import plan_json
from slipstream.plan.measure.measure import measure
from slipstream.plan.measure.selection import MeasureOptions
from slipstream.plan.plans import PlanOptions, plan, show

EXAMPLES = Path("examples")
MODELS = {
    "gpt": ("gpt.py:build", {}, ("batch=2,4,8",)),
    "llama": ("llama.py:build", {"LLAMA_SIZE": "1b"}, ("batch=1,2,4",)),
    "moe": ("moe.py:build", {"MOE_SIZE": "1b"}, ("batch=2,4,8",)),
}
ROUNDS, STEPS = 2, 3
KEPT = (
    *("choices", "status", "predicted_us", "step_us", "work_per_s", "memory_bytes"),
    *("measured_memory_bytes", "why"),
)
DATE = "planned.txt"
"""when a plan was finished; the times of files may not survive a copy"""


def today():
    return datetime.datetime.now(datetime.UTC).isoformat()


def make_plans(folder, names):
    for name in names:
        target, variables, vary = MODELS[name]
        os.environ.update(variables)
        options = PlanOptions(on=("H200",), vary=vary, folder=folder / name, budget_s=3600.0)
        found = plan(f"{EXAMPLES / target}", options)
        (machine,) = found.machines
        best = dict(machine.best.choices) if machine.best else None
        (folder / name / DATE).write_text(today())
        print(f"{name}: {machine.counts}; recommended {best}", flush=True)


def measure_plans(folder, out, names, is_all=True, use_gpu=None, budget_s=540.0):
    found = json.loads(Path(out).read_text()) if Path(out).exists() else {}
    for name in names:
        os.environ.update(MODELS[name][1])
        made = (folder / name / DATE).read_text()
        before = plan_json(show(folder / name))
        options = MeasureOptions(
            best=1000,
            bad=0,
            is_all=is_all,
            rounds=ROUNDS,
            steps=STEPS,
            budget_s=budget_s,
            records=False,
        )
        after = measure(
            folder / name,
            options,
            use_gpu=use_gpu,
            on_result=lambda one, outcome: print(
                f"  {dict(one.choices)}: {outcome.status} {outcome.note}", flush=True
            ),
        )
        found[name] = {
            "planned": made,
            "measured": today(),
            "plan": before,
            "result": plan_json(after),
        }
        Path(out).write_text(json.dumps(found, indent=1) + "\n")
        print("\n".join(table_of(name, found[name])), flush=True)


def table_of(name, found):
    result, before = found["result"], found["plan"]
    measured = [one for one in result["candidates"] if one["basis"] == "measured"]
    ran = [one for one in measured if one["status"] == "ok"]
    ran.sort(key=lambda one: -one["work_per_s"])
    yield f"{name}: planned {found['planned'][:16]}, measured {found['measured'][:16]}"
    yield "   predicted     measured   error  memory  measured  error"
    for one in ran:
        yield (
            f"{_ms(one['predicted_us'])} {_ms(one['step_us'])} "
            f"{_error(one['predicted_us'], one['step_us'])} {_gb(one['memory_bytes'])} "
            f" {_gb(one['measured_memory_bytes'])} "
            f"{_error(one['memory_bytes'], one['measured_memory_bytes'])}  {_chosen(one)}"
        )
    for one in measured:
        if one["status"] not in ("ok", "same program"):
            yield f"{one['status']}: {_chosen(one)}: {one['why'][:100]}"
    agreement = result["agreement"]
    if agreement is None or not ran:
        return
    recommended = before["best"]["choices"]
    own = next((one for one in ran if one["choices"] == recommended), None)
    behind = ran[0]["work_per_s"] / own["work_per_s"] - 1 if own else None
    said = "did not run" if behind is None else f"{behind:.1%} behind the best measured"
    yield f"recommended {_chosen(before['best'])}: {said}"
    yield f"{agreement['text']}; memory off by {agreement['memory_worst_error'] or 0:.1%} at most"


def read(out, kept):
    """What the pages need of a measurement; models that were kept before stay."""
    found = json.loads(Path(kept).read_text()) if Path(kept).exists() else {}
    for name, one in json.loads(Path(out).read_text()).items():
        before, result = one["plan"], one["result"]
        found[name] = {
            "planned": one["planned"],
            "measured": one["measured"],
            "jaxlib": before["jaxlib"],
            "recommended": before["best"]["choices"],
            "unit": result["unit"],
            "candidates": [
                {key: row[key] for key in KEPT}
                for row in result["candidates"]
                if row["basis"] == "measured"
            ],
        }
    Path(kept).write_text(json.dumps(found, indent=1) + "\n")


def _ms(us):
    return f"{us / 1e3:9.2f} ms" if us else f"{'–':>12}"


def _gb(size):
    return f"{size / 1e9:7.1f}" if size else f"{'–':>7}"


def _error(predicted, measured):
    return f"{predicted / measured - 1:+7.1%}" if predicted and measured else f"{'–':>7}"


def _chosen(one):
    return " ".join(f"{name}={value}" for name, value in one["choices"].items())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plan", metavar="FOLDER", type=Path)
    parser.add_argument("--measure", nargs=2, metavar=("FOLDER", "OUT"))
    parser.add_argument("--table", metavar="OUT")
    parser.add_argument(
        "--predicted", action="store_true", help="measure only what was not bounded away"
    )
    parser.add_argument("--budget", type=float, default=540.0, help="seconds for each model")
    parser.add_argument("--read", nargs=2, metavar=("OUT", "KEPT"))
    parser.add_argument("--only", choices=MODELS)
    options = parser.parse_args()
    names = [options.only] if options.only else list(MODELS)
    if options.plan:
        make_plans(options.plan, names)
    if options.measure:
        measure_plans(
            Path(options.measure[0]),
            options.measure[1],
            names,
            not options.predicted,
            budget_s=options.budget,
        )
    if options.read:
        read(*options.read)
    if options.table:
        for name, found in json.loads(Path(options.table).read_text()).items():
            print("\n".join(table_of(name, found)))


if __name__ == "__main__":
    main()
