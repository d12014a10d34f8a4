"""What is measured, in which order, and who can win: windows of steps that a table makes up."""

import json
import random
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace

import pytest

from slipstream.cli.tune.apply import apply
from slipstream.results.tuning import CRASH, DIFFERENT, FAILURES, HANG, OUT_OF_MEMORY
from slipstream.tune.measure import finals
from slipstream.tune.measure.ab_window import (
    JOBS,
    NULL,
    STEPS,
    ArmFailed,
    LookSchedule,
    outcome_of,
    run_ab_window,
)
from slipstream.tune.measure.measured_search import measure_candidates
from slipstream.tune.measure.next_candidates import TOGETHER, best_settings, next_candidates
from slipstream.tune.outcome import Outcome
from slipstream.tune.search.seeds import PROBE, SIMPLIFY, Suggestion
from slipstream.tune.search.study import TrialRow
from slipstream.tune.space.knob import Knob
from slipstream.tune.space.space import Space
from slipstream.tune.studies import show
from slipstream.tune.study_folder import (
    LAUNCHED,
    MEASURED,
    JobSpec,
    StudyConfig,
    open_study,
    write_study,
)

KNOBS = (
    Knob("xla_a", ("0", "1", "2"), "a", is_ordered=True),
    Knob("xla_b", ("x", "y"), "b"),
    Knob("xla_c", ("false", "true"), "c", "measurement"),
    Knob("NCCL_D", ("(unset)", "8", "16"), "d", "measurement", True),
)
FACTS = StudyConfig("t.py:build", "stablehlo", "8xH200", "jit_step", "step", "0.0", Space(KNOBS))
AS_JOB = replace(FACTS, measure=JobSpec(("python", "train.py")))
"""the same, timed by launching a job"""
SCREENED = [{}, {"xla_a": "1"}, {"xla_a": "2", "xla_b": "y"}, {"xla_b": "y"}]
"""the best last but one"""
STEP_US = [100.0, 98.0, 90.0, 99.0]


class Table:
    """Steps with noise; what each setting changes multiplies, and some fail. `a=1+b=y` is what
    these change only together."""

    def __init__(self, schedule: LookSchedule = STEPS, **changes: float) -> None:
        self.schedule = schedule
        self.changes = changes
        self.arms: dict[str, Mapping[str, str]] = {}
        self.timed: list[str] = []
        self._noise = random.Random(1)

    def compile_ahead(self, candidates: Mapping[str, Mapping[str, str]]) -> None:
        """Nothing to compile."""

    def prepare(self, name: str, settings: Mapping[str, str]) -> int | None:
        self.arms[name] = settings
        return None

    def time(self, name: str) -> float:
        self.timed.append(name)
        factor = 1.0
        settings = {f"{knob}={value}" for knob, value in self.arms.get(name, {}).items()}
        for together, change in self.changes.items():
            if not settings.issuperset(together.split("+")):
                continue
            if isinstance(change, str):
                raise ArmFailed(change, "as the table says")
            factor *= 1 + change
        return 1e-3 * factor * self._noise.gauss(1, 0.001)

    def results_check(self, name: str) -> str:
        return "not checked: made up"


def launched_folder(folder):
    write_study(folder, AS_JOB, b"")
    return folder


@pytest.fixture
def folder(tmp_path):
    """A study whose screen is done."""
    write_study(tmp_path, FACTS, b"")
    with closing(open_study(tmp_path, FACTS)) as study:
        assert [knob.name for knob in study.space.knobs] == ["xla_a", "xla_b"]
        study.enqueue([Suggestion(settings, f"by {n}") for n, settings in enumerate(SCREENED)])
        for number, step_us in enumerate(STEP_US):
            study.tell(
                study.ask(), Outcome("ok", step_us, program=str(number), least_us=step_us / 2)
            )
    return tmp_path


def tried(folder, name=MEASURED):
    with closing(open_study(folder, FACTS, name)) as study:
        return [row for row in study.rows() if row.state == "done" and row.repeat_of is None]


def test_simulated_winners_come_first_then_knobs_that_must_be_measured(folder):
    table = Table(**{"xla_a=1": -0.05, "xla_b=y": 0.03, "NCCL_D=16": -0.04})
    why = measure_candidates(
        launched_folder(folder), AS_JOB, table, trials=8, budget_s=600, space=FACTS.space
    )
    settings = [dict(row.settings) for row in tried(folder, LAUNCHED)]
    assert settings[:4] == [SCREENED[2], SCREENED[1], SCREENED[3], {"xla_c": "true"}]
    both = {"xla_a": "1", "NCCL_D": "16"}
    assert settings[4:6] == [{"xla_a": "1", "xla_c": "true"}, both]
    assert why == "8 candidates were measured"
    found = show(folder)
    assert found.best is not None and dict(found.best.settings) == both
    assert (found.best.basis, found.best.numbers) == ("measured", "not checked: made up")
    assert found.best.change_interval[0] < -0.088 < found.best.change_interval[1] < 0
    assert found.noise_floor is not None and found.noise_floor.is_clean
    assert {knob.name for knob in found.knobs} == {knob.name for knob in KNOBS}
    # What was measured counts, also for a knob whose effect was simulated before.
    effects = {knob.name: knob for knob in found.knobs}
    assert effects["xla_a"].basis == "measured"
    assert effects["xla_a"].effect == pytest.approx(-0.05, abs=0.01)


def row(number: int, settings: dict[str, str], low: float, high: float) -> TrialRow:
    outcome = Outcome("ok", 1.0, change=(low + high) / 2, change_interval=(low, high))
    return TrialRow(number, settings, "search", "done", outcome, None, 0.0)


def test_winners_are_combined_and_the_better_ones_values_count():
    measured = [
        row(0, {"xla_a": "1"}, -0.06, -0.04),
        row(1, {"xla_a": "2", "xla_b": "y"}, -0.03, -0.01),
        row(2, {"NCCL_D": "8"}, -0.02, -0.01),
        row(3, {"xla_c": "true"}, -0.02, 0.01),
    ]
    found = next_candidates(FACTS.space, [], measured, "step")
    assert best_settings(measured) == {"xla_a": "1"}
    assert [dict(one.settings) for one in found if one.origin == TOGETHER] == [
        {"xla_a": "1", "xla_b": "y"},
        {"xla_a": "1", "NCCL_D": "8"},
        {"xla_a": "1", "xla_b": "y", "NCCL_D": "8"},
    ]
    probes = [dict(one.settings) for one in found if one.origin == PROBE]
    assert probes == [
        {"xla_a": "1", "xla_c": "true"},
        {"xla_a": "1", "NCCL_D": "16"},
        {"xla_a": "1", "NCCL_D": "8"},
    ]


def test_in_one_process_there_are_no_variables(folder):
    measure_candidates(folder, FACTS, Table(), trials=5, budget_s=600)
    assert len(tried(folder)) == 5
    assert not any("NCCL_D" in row.settings for row in tried(folder))
    assert show(folder).left_out["NCCL_D"].startswith("a variable of the whole process")


def test_candidates_that_fail_are_recorded_as_such_and_never_win(folder):
    fails = {"xla_a=2": CRASH, "xla_b=y": HANG, "xla_c=true": OUT_OF_MEMORY, "NCCL_D=16": DIFFERENT}
    table = Table(**fails, **{"xla_a=1": -0.01})
    measure_candidates(
        launched_folder(folder), AS_JOB, table, trials=6, budget_s=600, space=FACTS.space
    )
    found = {str(dict(row.settings)): row.outcome for row in tried(folder, LAUNCHED)}
    for one, status in ((SCREENED[2], CRASH), (SCREENED[3], HANG)):
        assert found[str(one)].status == status
    assert found["{'xla_c': 'true'}"].status == OUT_OF_MEMORY
    assert found["{'xla_a': '1', 'NCCL_D': '16'}"].status == DIFFERENT
    assert {CRASH, HANG, OUT_OF_MEMORY, DIFFERENT} <= set(FAILURES)
    best = show(folder).best
    assert best is not None and dict(best.settings) == {"xla_a": "1"}


def test_a_budget_that_ends_inside_a_window_releases_its_candidates(folder):
    table = Table()
    why = measure_candidates(folder, FACTS, table, trials=9, budget_s=0.005)
    assert why.startswith("the budget of 0 s")
    assert tried(folder) == [] and show(folder).best.basis == "simulated"
    measure_candidates(folder, FACTS, Table(), trials=3, budget_s=600)
    assert [dict(row.settings) for row in tried(folder)][:2] == [SCREENED[2], SCREENED[1]]


def test_optunas_pruner_drops_candidates_worse_than_earlier_ones(folder):
    with closing(open_study(folder, FACTS, MEASURED)) as study:
        for change in (-0.10, -0.11, -0.09, -0.10):
            candidate = study.ask()
            assert not study.should_prune(candidate, change, 10)
            study.tell(candidate, Outcome("ok", 1.0, change=change))
        assert study.should_prune(study.ask(), -0.01, 10)
        assert not study.should_prune(study.ask(), -0.12, 10)
    table = Table(**{"k=a": -0.05})
    table.arms["a"] = {"k": "a"}
    window = run_ab_window(["a"], table.time, prune=lambda name, change, rounds: change < -0.04)
    assert outcome_of(window, "a", None).note.endswith(
        "; dropped early: worse than most candidates before it; 10 rounds"
    )


def test_slower_jobs_are_dropped_after_three_rounds(tmp_path):
    table = Table(JOBS, **{"k=slow": 0.05, "k=fast": -0.05})
    table.arms |= {"slow": {"k": "slow"}, "fast": {"k": "fast"}}
    window = run_ab_window(["slow", "fast"], table.time, schedule=JOBS)
    assert table.timed.count("slow") == JOBS.early[0]
    assert window.dropped == {"slow": "slower in each of 3 rounds"}
    assert window.comparisons["fast"].verdict == "faster"
    assert table.timed.count("fast") == table.timed.count(NULL) == JOBS.looks[0]


def test_finals_use_fresh_times(folder, monkeypatch):
    lucky = {"xla_b": "y"}
    with monkeypatch.context() as patch:
        patch.setattr("slipstream.tune.measure.finals.FINALISTS", 0)
        measure_candidates(
            folder, FACTS, Table(**{"xla_a=1": -0.05, "xla_b=y": -0.2}), trials=3, budget_s=600
        )
    assert dict(show(folder).best.settings) == lucky
    # Gone on with: the finals are played by a process that never ran these before.
    measure_candidates(folder, FACTS, Table(**{"xla_a=1": -0.05}), trials=3, budget_s=600)
    found = show(folder)
    assert found.best is not None and dict(found.best.settings) == {"xla_a": "1"}
    assert found.best.change_interval[0] < -0.05 < found.best.change_interval[1] < 0
    other = next(t for t in found.trials if t.basis == "measured" and t.settings == lucky)
    assert other.change == pytest.approx(0, abs=0.01) and other.note.startswith("finals; before:")


BOTH = SCREENED[2]
"""the screen's best, which is measured first"""


@pytest.mark.parametrize(
    ("changes", "best"),
    [
        ({"xla_a=2": -0.05}, {"xla_a": "2"}),
        ({"xla_a=2": -0.05, "xla_b=y": -0.001}, {"xla_a": "2"}),
        ({"xla_a=2": -0.05, "xla_b=y": -0.01}, BOTH),
        ({"xla_a=2+xla_b=y": -0.05, "xla_a=2": 0.02}, BOTH),
    ],
    ids=["clutter", "less than negligible", "a small gain", "only together"],
)
def test_the_best_is_the_simplest_that_is_as_fast(folder, changes, best):
    measure_candidates(folder, FACTS, Table(**changes), trials=7, budget_s=600)
    rows = [row for row in tried(folder) if row.settings]
    assert dict(rows[4].settings) == {"xla_a": "2"} and rows[4].origin == SIMPLIFY
    found = show(folder)
    assert found.best is not None and dict(found.best.settings) == best
    played = [one for one in found.measured if one.note.startswith("finals")]
    fastest = min(played, key=lambda one: one.change)
    said = [reason for reason in found.reasons if "the fewest settings" in reason]
    assert len(said) == (found.best != fastest)
    # What the simulation says is not taken for measured.
    simulated = [reason for reason in found.reasons if "no schedule of its program" in reason]
    assert len(simulated) == (best == BOTH)
    assert all(reason.startswith("in the simulation, ") for reason in simulated)
    assert found.baseline.basis == "measured" and found.baseline.least_us is None
    if changes.get("xla_b=y") == -0.001:
        assert "1 instead of 2: compared with the fastest, its step changes by +0.1%" in said[0]


def test_the_fastest_is_proposed_with_fewer_settings_the_strongest_alone_first():
    settings = {"xla_a": "2", "xla_b": "y", "xla_c": "true"}
    screened = [row(n, {}, 0.0, 0.0) for n in range(3)]
    for number, name in enumerate(settings):
        outcome = Outcome("ok", (1.0, 0.99, 0.9)[number], program=str(number))
        screened.append(replace(row(number, {name: settings[name]}, 0, 0), outcome=outcome))
    measured = [row(0, settings, -0.06, -0.04)]
    expected = [
        {"xla_c": "true"}, {"xla_b": "y", "xla_c": "true"},
        {"xla_b": "y"}, {"xla_a": "2", "xla_c": "true"},
        {"xla_a": "2"}, {"xla_a": "2", "xla_b": "y"},
    ]  # fmt: skip
    for turn in range(0, len(expected), 2):
        found = next_candidates(FACTS.space, screened, measured, "step")
        simpler = [dict(one.settings) for one in found if one.origin == SIMPLIFY]
        assert simpler == expected[turn : turn + 2] == [dict(one.settings) for one in found][:2]
        measured += [row(n, one, -0.01, 0.01) for n, one in enumerate(simpler, turn + 1)]


def test_redundant_winners_are_neither_extended_nor_combined():
    measured = [
        row(0, {"xla_a": "1", "xla_b": "y"}, -0.07, -0.04),
        row(1, {"xla_a": "1"}, -0.06, -0.04),
        row(2, {"xla_a": "1", "NCCL_D": "8"}, -0.05, -0.03),
    ]
    assert best_settings(measured) == {"xla_a": "1"}
    found = next_candidates(FACTS.space, [], measured, "step")
    assert not [one for one in found if one.origin == TOGETHER]
    assert dict(found[0].settings) == {"xla_b": "y"} and found[0].origin == SIMPLIFY
    # A sure gain stays.
    measured.append(row(3, {"xla_a": "1", "xla_c": "true"}, -0.09, -0.07))
    assert best_settings(measured) == {"xla_a": "1", "xla_c": "true"}


def test_among_the_finalists_are_the_best_with_one_setting_and_with_two():
    three = {"xla_a": "1", "xla_b": "y", "xla_c": "true"}
    clutter = [row(n, three | {"NCCL_D": str(n)}, -0.07, -0.05) for n in range(4)]
    one = row(4, {"xla_a": "1"}, -0.05, -0.02)
    two = row(5, {"xla_a": "1", "xla_b": "y"}, -0.04, -0.01)
    loser = row(6, {"xla_b": "y"}, -0.06, 0.01)
    found = finals.finalists([*clutter, two, one, loser])
    assert [finalist.number for finalist in found] == [0, 4, 5, 1]
    assert finals.finalists([loser]) == []


@pytest.mark.parametrize(
    ("slower", "noise", "verdict", "is_as_fast"),
    [
        (0.001, 0.001, "no different", True),
        (0.01, 0.001, "slower", False),
        (0.0, 0.2, "can't tell", False),
    ],
)
def test_a_simpler_finalist_must_be_as_fast_as_the_fastest(slower, noise, verdict, is_as_fast):
    random_ = random.Random(2)
    table = {"baseline": 1.0, "null": 1.0, "trial 3": 0.5, "trial 5": 0.5 * (1 + slower)}
    window = run_ab_window(
        ["trial 3", "trial 5"], lambda name: table[name] * random_.gauss(1, noise),
        schedule=STEPS.final,
    )  # fmt: skip
    told = finals.to_note(window, {"trial 3": 3, "trial 5": 5})
    found = finals.from_notes({finals.NOTE: told})
    fastest, other = sorted(found.values(), key=lambda result: result.change)
    assert fastest.is_as_fast and fastest.beside.change == 0
    assert (other.beside.verdict, other.is_as_fast) == (verdict, is_as_fast)
    # As it was written before there was such a comparison.
    plain = {n: {k: v for k, v in r.items() if k != "beside"} for n, r in json.loads(told).items()}
    assert not any(
        r.is_as_fast for r in finals.from_notes({finals.NOTE: json.dumps(plain)}).values()
    )


def test_without_a_winner_there_are_no_finals(folder):
    table = Table(**{"xla_a=1": 0.02, "xla_a=2": 0.02})
    measure_candidates(folder, FACTS, table, trials=3, budget_s=600)
    assert show(folder).best == show(folder).baseline


def test_winning_placeholder_values_are_applied_in_the_command(tmp_path, capsys):
    knobs = (*KNOBS[3:], Knob("processes", ("8", "1"), "asked for", "measurement"))
    order = JobSpec(("srun", "--ntasks-per-node={processes}", "python", "train.py"))
    facts = replace(FACTS, space=Space(knobs), measure=order)
    write_study(tmp_path, facts, b"")
    table = Table(JOBS, **{"processes=1": -0.1, "NCCL_D=16": -0.1})
    measure_candidates(tmp_path, facts, table, trials=5, budget_s=600, space=facts.space)
    apply(str(tmp_path), "sh", json=False)
    printed = capsys.readouterr()
    assert "NCCL_D=16" in printed.out and "processes" not in printed.out
    assert printed.err == "and in the command: srun --ntasks-per-node=1 python train.py\n"
    apply(str(tmp_path), "sh", json=True)
    assert json.loads(capsys.readouterr().out)["command"][1] == "--ntasks-per-node=1"
