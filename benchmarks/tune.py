"""A tuned setting against the best of a one-knob-at-a-time sweep over the same knobs, on a GPU.

For each target, in one run: `slipstream tune --measure` within its budget, told nothing but the
script; then every value of every knob alone, measured the same way (a value that gives the
default's program, or one that was measured, is not run again; 15 rounds, where the tuner has up to
30); then both winners, the baseline and the baseline over again in turn, 30 rounds, none of which
had a part in choosing them. `python benchmarks/tune.py [TARGET …] [--budget 10m] [--out FOLDER]`
prints tables in Markdown, which docs/tune.md shows. Needs a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from slipstream.cli.tune.common import LiveTable, seconds
from slipstream.compiler.compile import machine_of
from slipstream.experiment.stats import Comparison, compare
from slipstream.outputs.terminal.compiled.tune import settings_text, tuning_json
from slipstream.results.tuning import Tuning
from slipstream.tune.measure.ab_window import BASELINE, NULL, ArmFailed, outcome_of, run_ab_window
from slipstream.tune.measure.in_process import InProcess
from slipstream.tune.measure.measured_search import WINDOW
from slipstream.tune.outcome import Outcome
from slipstream.tune.search.screen import Screen, ScreenSpec
from slipstream.tune.space.space import SpaceOptions
from slipstream.tune.studies import TuneOptions, tune
from slipstream.tune.study_folder import JobSpec, StudyConfig, read_study, target_of

EXAMPLES = Path(__file__).parents[1] / "examples"
TARGETS = (f"{EXAMPLES / 'gpt.py'}:build", f"{EXAMPLES / 'gpt_offload.py'}:build")
ROUNDS, SWEEP_ROUNDS = 30, 15
TUNED, SWEPT = "tuned", "swept"
Settings = Mapping[str, str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", default=TARGETS, metavar="TARGET")
    parser.add_argument("--on", default="1xH200")
    parser.add_argument("--budget", type=seconds, default=600.0, help="of the tuner: 10m")
    parser.add_argument(
        "--trials", type=int, default=40, help="candidates at most, simulated and measured"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", action="append", default=[], help="knobs, for a short try")
    parser.add_argument("--cpu", action="store_true", help="only to try this script out")
    parser.add_argument("--out", default=tempfile.mkdtemp(), help="where figures are written")
    options = parser.parse_args()
    if not options.cpu and shutil.which("nvidia-smi") is None:
        print("no GPU here: this benchmark needs one")
        return
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    for number, target in enumerate(options.targets):
        with tempfile.TemporaryDirectory() as folder:
            contest(target, options, Path(folder) / "study", out / f"tune{number}.json")


def contest(target: str, options: argparse.Namespace, folder: Path, file: Path) -> None:
    """The tuner, the sweep, and their winners side by side; what is known is written at once."""
    print(f"\n### {Path(target.rpartition(':')[0]).name}\n", flush=True)
    found: dict[str, object] = {"target": Path(target).name}

    def keep(**more: object) -> None:
        found.update(more)
        file.write_text(json.dumps(found, indent=1) + "\n")

    begin = time.monotonic()
    tuning = tuned(target, options, folder)
    best = dict(tuning.best.settings) if tuning.best else {}
    keep(tuned=best, tuning_s=time.monotonic() - begin, tuning=tuning_json(tuning))
    measured = sum(trial.basis == "measured" for trial in tuning.trials)
    print(
        f"tuner: {found['tuning_s']:.0f} s, {len(tuning.trials) - measured} candidates simulated,"
    )
    print(f"{measured} measured; stopped because {tuning.stopped_because}.", flush=True)
    config = read_study(folder)
    begin = time.monotonic()
    values = list(alone(folder, config))
    with bench_of(config, use_gpu=not options.cpu) as bench:
        swept, tried = sweep(values, bench)
        keep(swept=swept, sweep_s=time.monotonic() - begin, sweep=tried)
        print(f"Sweep: {found['sweep_s']:.0f} s, {len(tried)} of {len(values)} values ran.")
        final = side_by_side(best, swept, bench, options.rounds)
    keep(final={name: vars(one) for name, one in final.items()})
    table(final, {TUNED: best, SWEPT: swept})


def tuned(target: str, options: argparse.Namespace, folder: Path) -> Tuning:
    """What `slipstream tune --measure` does."""
    order = TuneOptions(
        options.on,
        trials=options.trials,
        budget_s=options.budget,
        folder=folder,
        space=SpaceOptions(only=tuple(options.only)),
        measure=JobSpec(),
    )
    with LiveTable() as shown:
        return tune(target, order, on_result=shown.told, progress=shown.progress)


def bench_of(config: StudyConfig, *, use_gpu: bool) -> InProcess:
    module, _, function = config.target.rpartition(":")
    return InProcess(module, function, use_gpu=use_gpu, tolerance=config.tolerance)


def alone(folder: Path, config: StudyConfig) -> Iterator[Settings]:
    """Every value of every knob by itself, each program once."""
    knobs = config.space.in_process.knobs
    values = [(knob, {knob.name: value}) for knob in knobs for value in knob.values[1:]]
    screened = [{}, *(settings for knob, settings in values if knob.seen_by != "measurement")]
    outcomes = iter(compiled(folder, config, screened))
    programs = {next(outcomes).program}
    for knob, settings in values:
        if knob.seen_by != "measurement":
            outcome = next(outcomes)
            if not outcome.is_ok or outcome.program in programs:
                continue
            programs.add(outcome.program)
        yield settings


def compiled(folder: Path, config: StudyConfig, all_settings: Sequence[Settings]) -> list[Outcome]:
    """With no GPU, a few at once."""
    spec = ScreenSpec(target_of(folder, config), machine_of(config.machine))
    jobs = min(8, max((os.cpu_count() or 1) // 2, 1))
    with ExitStack() as stack:
        free: queue.Queue[Screen] = queue.Queue()
        for _ in range(jobs):
            free.put(stack.enter_context(spec.screen()))

        def outcome(settings: Settings) -> Outcome:
            screen = free.get()
            try:
                return screen.evaluate(settings)
            finally:
                free.put(screen)

        with ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(outcome, all_settings))


def sweep(values: Sequence[Settings], bench: InProcess) -> tuple[Settings, list[dict]]:
    """The best of them, nothing if none is faster, and what became of each that ran."""
    tried: list[dict] = []
    for first in range(0, len(values), WINDOW):
        batch = {f"alone {n}": values[n] for n in range(first, min(first + WINDOW, len(values)))}
        bench.compile_ahead(batch)
        ready = {}
        for name, settings in batch.items():
            try:
                bench.prepare(name, settings)
                ready[name] = settings
            except ArmFailed as failed:
                print(f"- {settings_text(settings)}: {failed.status}, {failed}", flush=True)
        if not ready:
            continue
        window = run_ab_window(list(ready), bench.time, SWEEP_ROUNDS)
        for name, settings in ready.items():
            outcome = outcome_of(window, name, None)
            tried.append({"settings": settings, "change": outcome.change, "status": outcome.status})
    known = [one for one in tried if one["change"] is not None]
    best = min(known, key=lambda one: one["change"], default=None)
    return (best["settings"] if best and best["change"] < 0 else {}), tried


def side_by_side(
    tuned: Settings, swept: Settings, bench: InProcess, rounds: int
) -> dict[str, Comparison]:
    """Fresh times of everybody in turn; the last comparison is of the two winners."""
    bench.prepare(TUNED, tuned)
    bench.prepare(SWEPT, swept)
    arms = [BASELINE, NULL, TUNED, SWEPT]
    times: dict[str, list[float]] = {name: [] for name in arms}
    for number in range(rounds + 2):
        for name in arms if number % 2 == 0 else reversed(arms):
            taken = bench.time(name)
            if number >= 2:
                times[name].append(taken)
    found = {name: compare(times[BASELINE], times[name], 3) for name in (NULL, TUNED, SWEPT)}
    return {**found, "tuned against swept": compare(times[SWEPT], times[TUNED])}


def table(final: Mapping[str, Comparison], settings: Mapping[str, Settings]) -> None:
    print(
        "\n| arm | step, ms | change | 95% interval | settings |\n| --- | --- | --- | --- | --- |"
    )
    for name, found in final.items():
        text = f"`{settings_text(settings[name])}`" if name in settings else ""
        print(
            f"| {name} | {found.after_us / 1e3:.2f} | {found.change:+.2%} | "
            f"{found.low:+.2%} … {found.high:+.2%} | {text} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
