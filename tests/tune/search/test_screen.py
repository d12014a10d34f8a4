"""Space, fingerprints and the screen, with the real compiler, on a step that compiles quickly."""

import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

import slipstream.tune.search.screen
from slipstream.analyses.soundness import Soundness, WrongBitcast
from slipstream.compiler.compile import compiler, machine_of
from slipstream.compiler.worker.process import WorkerProcess
from slipstream.errors import BadInput
from slipstream.flags.catalogue.catalogue import installed_catalogue
from slipstream.flags.catalogue.values import option_value_error
from slipstream.outputs.terminal.compiled.tune import study_notes
from slipstream.results.tuning import (
    CRASH,
    HANG,
    IMPOSSIBLE,
    NO_FIT,
    OK,
    REFUSED,
    WRONG,
    TrialResult,
    Tuning,
)
from slipstream.simulate.prediction import predict
from slipstream.tune.outcome import Outcome
from slipstream.tune.report.reasons import layer_sizes, reasons
from slipstream.tune.search.fingerprint import fingerprint_of
from slipstream.tune.search.screen import Screen
from slipstream.tune.search.seeds import seeds
from slipstream.tune.space.program_traits import ProgramTraits, traits_of
from slipstream.tune.space.space import SpaceOptions, space_of
from slipstream.tune.studies import TuneOptions, resume, show, start, tune
from slipstream.tune.study_folder import read_study

MACHINE = "2xH200"
GATHER = "xla_gpu_all_gather_combine_threshold_bytes"
GRAPHS = "xla_gpu_enable_command_buffer"
BY_DIM = "xla_gpu_enable_all_gather_combine_by_dim"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory, step_file, session_cache, quick):
    """The step's program, and one whose instructions have other names and places."""
    before = dict(os.environ)
    os.environ["XDG_CACHE_HOME"] = str(session_cache)
    os.environ["XLA_FLAGS"] = quick
    with compiler(f"{step_file}:build", on=MACHINE) as session:
        found = session.compile()
        target = session.portable_target()
    os.environ.clear()
    os.environ.update(before)
    return found, target


def test_knobs_are_those_that_can_affect_the_program(compiled):
    traits = traits_of(compiled[0].program, machine_of(MACHINE))
    assert traits.loops == 2 and traits.matmuls > 0 and traits.host_copies == 0
    assert "all-gather" in traits.in_loops and "collective-permute" not in traits.collectives
    space = space_of(traits, installed_catalogue())
    names = {knob.name for knob in space.knobs}
    assert {GATHER, GRAPHS, "xla_gpu_enable_while_loop_double_buffering"} <= names
    assert space.left_out["xla_gpu_enable_pipelined_p2p"] == "the program has no collective-permute"
    assert space.left_out["xla_gpu_autotune_level"] == "its effect can only be measured: --measure"
    measured = space_of(traits, installed_catalogue(), is_measured=True)
    assert measured.knob("xla_gpu_autotune_level") is not None
    assert measured.left_out["NCCL_PROTO"].startswith("a variable of the whole process")
    gather = space.knob(GATHER)
    assert gather is not None and "all-gather" in gather.why
    layer = traits.layers.layer_weights.bytes
    sizes = [int(value) for value in gather.values[1:]]
    assert min(sizes) <= 2**20 * 2 and max(sizes) >= layer


def test_without_collectives_or_loops_there_are_no_knobs_for_them():
    space = space_of(ProgramTraits(1, 1, matmuls=3), installed_catalogue(), is_measured=True)
    names = " ".join(knob.name for knob in space.knobs)
    for word in ("gather", "reduce_scatter", "collective", "latency", "loop", "NCCL", "offload"):
        assert word not in names, word
    assert "triton_gemm" in names


def test_this_jaxlib_accepts_every_value(compiled):
    traits = traits_of(compiled[0].program, machine_of(MACHINE))
    catalogue = installed_catalogue()
    for knob in space_of(traits, catalogue, is_measured=True).knobs:
        assert len(set(knob.values)) == len(knob.values) > 1
        assert "{" not in knob.why and knob.why.endswith(".")
        if not knob.is_flag:
            continue
        flag = catalogue.flags[knob.name]
        assert knob.default == flag.default
        for value in knob.values[1:]:
            spelled = value.capitalize() if flag.kind == "bool" else value
            assert option_value_error(flag, spelled, catalogue.jaxlib_version) is None


def test_users_add_and_forbid_knobs(compiled):
    traits = traits_of(compiled[0].program, machine_of(MACHINE))
    catalogue = installed_catalogue()
    added = {"xla_gpu_graph_min_graph_size": ("7",), "MY_VARIABLE": ("1",)}
    asked = SpaceOptions((GRAPHS,), added, (GATHER, *added))
    space = space_of(traits, catalogue, options=asked)
    assert [knob.name for knob in space.knobs] == [GATHER, *added]
    assert space.left_out[GRAPHS] == "forbidden"
    for wrong, match in (
        (SpaceOptions(("xla_nothing",)), "there is no knob 'xla_nothing'"),
        (
            SpaceOptions(added={"xla_gpu_nothing_at_all": ("1",)}),
            "has no compile option xla_gpu_nothing_at_all",
        ),
        (SpaceOptions(added={"xla_gpu_graph_min_graph_size": ("many",)}), "the value is 'many'"),
    ):
        with pytest.raises(BadInput, match=match):
            space_of(traits, catalogue, options=wrong)


def test_seeds_start_with_the_default_and_the_presets(compiled):
    traits = traits_of(compiled[0].program, machine_of(MACHINE))
    space = space_of(traits, installed_catalogue())
    found = seeds(space, traits, installed_catalogue(), "H200", 5)
    assert found[0].settings == {}
    origins = [one.origin for one in found]
    assert "preset fsdp" in origins and "preset cuda-graphs-off" in origins
    assert origins.count("probe") <= 5
    for one in found:
        for name, value in one.settings.items():
            knob = space.knob(name)
            assert knob is not None and value in knob.values and value != knob.default


def test_outcomes_of_the_screen(compiled):
    found, target = compiled
    with Screen(target, machine_of(MACHINE)) as screen:
        default = screen.evaluate({})
        same = screen.evaluate({BY_DIM: "true"})
        launched = screen.evaluate({GRAPHS: ""})
        refused = screen.evaluate({"xla_no_such_flag": "1"})
    assert default.status == OK and default.step_us and default.step_us > 0
    assert default.memory_bytes == found.memory.peak_bytes
    assert default.program == fingerprint_of(found.program).schedule
    assert default.counts is not None and default.counts.collectives["all-gather"].count > 0
    # One program, however it came about; another way to launch it is another candidate.
    assert same.program == default.program and same.step_us == default.step_us
    assert launched.program != default.program and launched.work == default.work
    assert refused.status == REFUSED and "xla_no_such_flag" in refused.note
    with Screen(target, machine_of(MACHINE), most_memory_bytes=1000) as screen:
        tight = screen.evaluate({})
    assert tight.status == NO_FIT and "of 1 kB" in tight.note


def test_reasons_are_read_from_the_compiled_program(compiled):
    """By its size, a threshold of one byte cuts a layer into half a million; XLA makes five."""
    found, target = compiled
    with Screen(target, machine_of(MACHINE)) as screen:
        default, split = screen.evaluate({}), screen.evaluate({GATHER: "1"})
    traits = traits_of(found.program, machine_of(MACHINE))
    layers = layer_sizes(traits, space_of(traits, installed_catalogue()))
    said = reasons({GATHER: "1"}, default, split, layers)
    assert (
        "all-gathers per step 6 → 10, the largest 524 kB → 262 kB, asynchronous 6 → 10, in loops "
        "6 → 10" in said
    )
    assert (
        "with the all-gather threshold of 1 B, the program has 10 all-gathers per step, 5 for each "
        "layer, 162 kB on average (a layer's weights: 524 kB, 2 layers)" in said
    )
    counts = default.counts.collectives["all-gather"]
    # Four of the six gather two arrays each.
    assert (counts.count, counts.arrays, counts.asynchronous, counts.in_loops) == (6, 10, 6, 6)
    assert default.counts.loops == (2, 2) and default.counts.triton_matmuls == 0


def test_a_step_below_its_bound_is_an_error_of_the_model(compiled, monkeypatch):
    def too_fast(*arguments, **options):
        found = predict(*arguments, **options)
        return replace(found, step_us=found.bounds.least_us / 2)

    monkeypatch.setattr(slipstream.tune.search.screen, "predict", too_fast)
    with Screen(compiled[1], machine_of(MACHINE)) as screen:
        default, split = screen.evaluate({}), screen.evaluate({GATHER: "1"})
    assert default.status == OK
    assert split.status == IMPOSSIBLE and split.score("step") is None
    assert split.note.startswith("simulated in ")
    assert split.note.endswith(": an error of the model, not a gain")


def test_wrong_results_never_win_and_a_wrong_baseline_is_reported(compiled, monkeypatch):
    found = Soundness((WrongBitcast("b", "bf16[2]", "f32[2]", 4, 8, "feeds"),))
    monkeypatch.setattr(slipstream.tune.search.screen, "soundness", lambda program: found)
    with Screen(compiled[1], machine_of(MACHINE)) as screen:
        default, same = screen.evaluate({}), screen.evaluate({BY_DIM: "true"})
    assert (default.status, default.wrong) == (OK, found.text)
    assert (same.status, same.note, same.score("step")) == (WRONG, found.text, None)
    assert Outcome.from_json(same.to_json()) == same
    baseline = TrialResult(0, {}, OK, "default", wrong=default.wrong)
    said = Tuning(
        "t", MACHINE, "p", "step", "0", baseline, baseline, (baseline,), (), {}, (), None, None, "",
        1.0, "s",
    )  # fmt: skip
    assert any(
        text.startswith("with the default settings the program's results are wrong: b reads")
        for text in study_notes(said)
    )


def signalled_workers(monkeypatch, *numbers, late_s=0.0):
    """The first compiler processes get these signals as soon as they are there."""
    make, left = WorkerProcess.__init__, iter(numbers)

    def made(self, *arguments, **named):
        time.sleep(late_s)
        make(self, *arguments, **named)
        if (number := next(left, None)) is not None:
            os.kill(self._child.pid, number)

    monkeypatch.setattr(WorkerProcess, "__init__", made)


FRESH = {"xla_gpu_graph_min_graph_size": "17"}


@pytest.fixture
def empty_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_a_compiler_that_hangs_is_the_candidates_outcome(compiled, empty_cache, monkeypatch):
    """Its time is over before there is a process that could be ended."""
    signalled_workers(monkeypatch, signal.SIGSTOP, late_s=0.3)
    with Screen(compiled[1], machine_of(MACHINE), timeout_s=0.05) as screen:
        hung = screen.evaluate(FRESH)
    assert hung.status == HANG and "more than 0 s" in hung.note


def test_a_compiler_that_dies_is_the_candidates_outcome_and_the_next_one_works(
    compiled, empty_cache, monkeypatch
):
    signalled_workers(monkeypatch, signal.SIGSEGV)
    with Screen(compiled[1], machine_of(MACHINE)) as screen:
        assert screen.evaluate(FRESH).status == CRASH
        assert screen.evaluate(FRESH).status == OK


def test_fingerprints_depend_on_order_and_content_but_not_on_names(compiled):
    program = compiled[0].program
    found = fingerprint_of(program)
    with compiler(compiled[1], on=MACHINE) as session:
        other = session.compile(flags={GATHER: "1"}).program
    assert fingerprint_of(other) == fingerprint_of(other)
    assert (fingerprint_of(other).schedule == found.schedule) == (
        other.content_hash == program.content_hash
    )


ASKED = SpaceOptions(only=(GATHER, GRAPHS, BY_DIM))


def test_a_whole_search_and_its_report(target, tmp_path):
    folder = tmp_path / "study"
    told = []
    order = TuneOptions(on=MACHINE, trials=6, budget_s=300, folder=folder, jobs=2, space=ASKED)
    found = tune(target, order, on_result=lambda candidate, outcome: told.append(candidate.number))
    assert len(found.trials) == 6 == len(told)
    assert found.baseline is not None and found.baseline.settings == {}
    assert found.best is not None and found.best.change is not None and found.best.change <= 0
    assert found.best.step_us == min(t.step_us for t in found.trials if t.step_us is not None)
    # No gain is larger than the bound of its program allows.
    bounded = [(t.step_us, t.least_us) for t in found.trials if t.step_us is not None]
    assert bounded and all(least is not None and step >= least > 0 for step, least in bounded)
    assert {t.status for t in found.trials} <= {"ok", "same program"}
    assert all(t.same_program_as is not None for t in found.trials if t.status == "same program")
    assert found.stopped_because == "6 candidates were tried"
    assert found.trust is not None and found.trust.margin > 0.02
    # An edited script changes nothing; the study goes on where it was.
    Path(target.rpartition(":")[0]).touch()
    again = resume(folder, trials=8, jobs=1)
    assert [t.number for t in again.trials[:6]] == [t.number for t in found.trials]
    assert len(again.trials) == 8
    shown = show(folder)
    assert [t.settings for t in shown.trials] == [t.settings for t in again.trials]
    with pytest.raises(BadInput, match="already holds a study"):
        tune(target, order)


def test_a_study_of_another_jaxlib_is_not_resumed(target, tmp_path):
    folder = tmp_path / "study"
    start(target, TuneOptions(on=MACHINE, folder=folder, space=ASKED))
    file = folder / "study.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "jaxlib": "0.4.1"}))
    with pytest.raises(BadInput, match=r"made with jaxlib 0\.4\.1, but"):
        resume(folder)
    assert read_study(folder).jaxlib == "0.4.1"
    with pytest.raises(BadInput, match="holds no study"):
        show(tmp_path)


def test_whole_compiles_are_for_timing_them(compiled, request):
    """A compile in the cache may have left out what takes most of the time."""
    with Screen(compiled[1], machine_of(MACHINE)) as screen:
        screen.evaluate({})
    asked = request.getfixturevalue("refused_compiles")
    for times_compiles in (False, True):
        with Screen(compiled[1], machine_of(MACHINE), times_compiles=times_compiles) as screen:
            screen.evaluate({})
            screen.evaluate({GATHER: "77"})
    assert ["xla_gpu_cuda_data_dir" in options for options in asked] == [True, False, False]
