"""Arms that are the same program, run in the same way, are found before anything is timed."""

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest

from analyses.test_soundness import CONTIGUOUS
from slipstream.compiler.order import Order
from slipstream.costs.scheduler_names import looked_up
from slipstream.costs.table import Cost, CostTable, ProgramCosts
from slipstream.experiment import variants
from slipstream.experiment.variants import (
    BOTH,
    COSTS,
    NO_GRAPHS,
    SCHEDULE,
    Arm,
    Variant,
    drop_duplicates,
    make_arm,
    read_program,
)
from slipstream.jaxhooks.compiled_program import CompiledProgram
from slipstream.jaxhooks.compiling import overrides_in
from slipstream.jaxhooks.private_api import COMPILE_OPTIONS
from slipstream.sources.hlo.reader import program_from_text

OTHER = CONTIGUOUS.replace("bf16[2,512]", "f32[2,512]")
EIGEN = Variant("eigen", {"xla_cpu_multi_thread_eigen": "false"})
MIXED = Variant("mixed", {**EIGEN.flags, **NO_GRAPHS.flags})
OFF = {"xla_gpu_enable_command_buffer": ""}


@pytest.mark.parametrize(
    ("platform", "in_effect", "variants", "same"),
    [
        # A CPU knows neither costs nor command buffers.
        ("cpu", {}, (COSTS, NO_GRAPHS, BOTH), ["original"] * 3),
        ("tpu", {}, (COSTS, NO_GRAPHS, BOTH), ["original"] * 3),
        ("cpu", {}, (EIGEN, MIXED), [None, "eigen"]),
        ("cpu", EIGEN.flags, (EIGEN, MIXED), ["original"] * 2),
        # A GPU's program doesn't show how it is launched.
        ("gpu", {}, (COSTS, NO_GRAPHS, BOTH), ["original", None, "no command buffers"]),
        ("gpu", OFF, (COSTS, NO_GRAPHS, BOTH), ["original"] * 3),
        ("", {}, (NO_GRAPHS,), [None]),
    ],
)
def test_equal_programs_are_timed_once(platform, in_effect, variants, same):
    program = program_from_text(CONTIGUOUS)
    arms = [Arm(variant, program=program) for variant in (Variant("original"), *variants)]
    drop_duplicates(arms, platform, in_effect)
    assert [arm.same_as for arm in arms] == [None, *same]


def test_a_program_that_only_its_configuration_tells_apart_is_another_one():
    """The same instructions on the same shapes, with another algorithm."""
    program = program_from_text(CONTIGUOUS)
    entry = program.entry
    first, *others = entry.instructions
    tuned = replace(first, backend_config='{"algorithm":7}')
    changed = replace(entry, instructions=(tuned, *others))
    other = replace(program, computations={**program.computations, entry.name: changed})
    arms = [Arm(Variant("original"), program=program), Arm(COSTS, program=other)]
    drop_duplicates(arms, "gpu", {})
    assert [arm.same_as for arm in arms] == [None, None]


def test_a_program_that_is_compiled_twice_has_one_hash():
    import jax

    def step(x):
        return jax.lax.scan(lambda c, _: (c @ c, c.sum()), x, None, length=3)

    lowered = jax.jit(step).lower(jax.ShapeDtypeStruct((8, 8), "float32"))
    made = [lowered.compile().runtime_executable() for _ in range(2)]
    assert len({read_program(one, "step").content_hash for one in made}) == 1


def test_another_program_is_never_the_same():
    arms = [
        Arm(Variant("original"), program=program_from_text(CONTIGUOUS)),
        Arm(NO_GRAPHS, program=program_from_text(OTHER)),
        Arm(COSTS, error="not made"),
    ]
    drop_duplicates(arms, "cpu", OFF)
    assert [arm.same_as for arm in arms] == [None, None, None]


def test_the_flags_of_a_function_count_before_those_of_the_process(monkeypatch):
    options = COMPILE_OPTIONS.get()()  # reads XLA_FLAGS when it is made first
    options.env_option_overrides = [("xla_gpu_graph_min_graph_size", "2")]
    flags = "--xla_gpu_enable_command_buffer= --xla_gpu_graph_min_graph_size=1"
    monkeypatch.setenv("XLA_FLAGS", flags)
    program = CompiledProgram("f", b"", 0.0, None, None)
    assert program.flags_in_effect == {**OFF, "xla_gpu_graph_min_graph_size": "1"}
    assert program.platform == ""
    program.options = options.SerializeAsString()
    assert overrides_in(program.options) == {"xla_gpu_graph_min_graph_size": "2"}
    assert program.flags_in_effect == {**OFF, "xla_gpu_graph_min_graph_size": "2"}


@pytest.mark.parametrize(("is_complete", "levels"), [(True, ["ERROR", "OFF"]), (False, ["OFF"])])
def test_missing_costs_are_not_listed_in_the_log_of_the_job(is_complete, levels):
    """XLA lists them whenever its check is on and one is missing."""
    program = program_from_text(CONTIGUOUS)
    names = [i.name for i in looked_up(program)]
    costs = {name: Cost(name, 1.0, 1) for name in (names if is_complete else names[:1])}
    table = CostTable((ProgramCosts(None, program.name, costs),))
    asked = []

    def recompile(flags, costs):
        asked.append(flags["xla_gpu_pgle_accuracy_checker"].rpartition("_")[2])
        raise RuntimeError("planted")

    make_arm(SimpleNamespace(recompile=recompile), COSTS, b"costs", table, program)
    assert asked == levels


def test_a_variant_with_an_order_needs_one():
    arm = make_arm(None, SCHEDULE, None, None, order="no order was found")
    assert (arm.executable, arm.error) == (None, "no order was found")
    assert make_arm(None, SCHEDULE, None, None).error == "there is no order for this program"


def test_an_order_that_xla_never_asked_for_is_an_error_of_its_arm(monkeypatch):
    """Such as from a compile that came out of JAX's cache: our pass is not called."""
    monkeypatch.setattr(variants, "registered", nullcontext)
    compiled = SimpleNamespace(recompile=lambda flags, costs: object())
    arm = make_arm(compiled, SCHEDULE, None, None, order=Order({"main": ("a",)}, None))
    assert arm.executable is None
    assert arm.error == "XLA did not take the order: it never called the pass"


def test_an_order_that_xla_rejects_is_an_error_of_its_arm(monkeypatch):
    """The job goes on with what it has."""
    monkeypatch.setattr(variants, "registered", nullcontext)

    def rejects(flags, costs):
        raise RuntimeError("INTERNAL: after slipstream-order: k2 is scheduled before k1\nmore")

    compiled = SimpleNamespace(recompile=rejects)
    arm = make_arm(compiled, SCHEDULE, None, None, order=Order({"main": ("a",)}, None))
    assert (arm.executable, arm.runs) == (None, False)
    assert arm.error == "INTERNAL: after slipstream-order: k2 is scheduled before k1"
