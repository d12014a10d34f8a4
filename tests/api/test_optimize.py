"""`optimize` on real JAX programs on CPU; step times are planted, never measured."""

import contextlib
import functools
import gc
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import slipstream
from run_jobs import LONGEST_S, wait_until
from slipstream.api.optimize import Optimized
from slipstream.errors import BadInput
from slipstream.experiment import prepare as preparing
from slipstream.experiment.plan import ExperimentPlan
from slipstream.experiment.receipt import read_receipt
from slipstream.experiment.variants import SCHEDULE, Variant
from slipstream.jaxhooks.compiled_program import CompiledProgram
from slipstream.jaxhooks.hooks import HOOKS
from slipstream.jaxhooks.profiler import ProfilerSession

FLAGS = {"xla_disable_hlo_passes": "fusion"}
OTHER = Variant("no fusion", FLAGS)


@pytest.fixture(autouse=True)
def no_traces_left():
    yield
    HOOKS.uninstall()
    jax.clear_caches()


def planted(times):
    def timer(arm, run):
        result = run()
        jax.block_until_ready(result)
        return result, times[arm.name]

    return timer


FASTER = planted({"original": 1.0, "no fusion": 0.9})
SLOWER = planted({"original": 1.0, "no fusion": 1.1})


def optimized(function, tmp_path, timer=FASTER, variants=(OTHER,), checks=False):
    plan = ExperimentPlan(tmp_path, start=1, steps=1, rounds=8, variants=variants, checks=checks)
    return Optimized(function, plan, timer)


def settle(step, *arguments, following=None, **named):
    """Call until it is settled; `following` makes the arguments of the next call from a result."""
    results, end = [], time.monotonic() + LONGEST_S
    while time.monotonic() < end:
        results.append(step(*arguments, **named))
        if following is not None:
            arguments = following(results[-1])
        if step.is_settled:
            return results
        time.sleep(0.01)
    raise AssertionError("it never settled")


def f(w, x):
    for _ in range(3):
        x = jnp.tanh(x @ w) * jnp.exp(x)
    return x


def matrix(seed=0, n=32):
    return jnp.asarray(np.random.default_rng(seed).normal(size=(n, n)) / n, dtype=jnp.float32)


def assert_bitwise(one, other):
    leaves = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    assert all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in leaves)


def test_a_jitted_function_keeps_the_faster_program_and_says_so(tmp_path):
    step = optimized(jax.jit(f), tmp_path, checks=True)
    settle(step, matrix(), matrix(1))
    (receipt,) = step.receipts()
    assert (receipt.verdict, receipt.chosen) == ("faster", "no fusion")
    assert step.report().startswith("faster: 1 s → 900 ms, -10.0%")
    expected = jax.jit(f, compiler_options=FLAGS)(matrix(), matrix(1))
    assert_bitwise(step(matrix(), matrix(1)), expected)
    assert set(receipt.files) == {"before", "after", "costs"}


def test_the_chosen_program_runs_on_the_fast_path(tmp_path, monkeypatch):
    jitted = jax.jit(f)
    step = optimized(jitted, tmp_path)
    settle(step, matrix(), matrix(1))
    step(matrix(), matrix(1))
    monkeypatch.setattr(HOOKS, "_calling", lambda *arguments: pytest.fail("Python was asked"))
    expected = step(matrix(), matrix(1))
    monkeypatch.undo()
    assert_bitwise(expected, jax.jit(f, compiler_options=FLAGS)(matrix(), matrix(1)))


def test_a_slower_program_is_not_kept(tmp_path):
    step = optimized(jax.jit(f), tmp_path, SLOWER)
    results = settle(step, matrix(), matrix(1))
    (receipt,) = step.receipts()
    assert (receipt.verdict, receipt.chosen) == ("slower", "original")
    plain = jax.jit(f)(matrix(), matrix(1))
    assert_bitwise(results[0], plain)
    assert_bitwise(step(matrix(), matrix(1)), plain)


@pytest.mark.parametrize("kind", ["lowered", "compiled", "compiled and called"])
def test_ahead_of_time_programs(tmp_path, kind, monkeypatch):
    lowered = jax.jit(f).lower(matrix(), matrix(1))
    target = lowered if kind == "lowered" else lowered.compile()
    if kind == "compiled and called":
        target(matrix(), matrix(1))
    step = optimized(target, tmp_path)
    settle(step, matrix(), matrix(1))
    assert step.receipts()[0].chosen == "no fusion"
    fresh = jax.jit(f).lower(matrix(), matrix(1)).compile(compiler_options=FLAGS)
    assert_bitwise(step(matrix(), matrix(1)), fresh(matrix(), matrix(1)))
    step(matrix(), matrix(1))
    monkeypatch.setattr(HOOKS, "_calling", lambda *arguments: pytest.fail("Python was asked"))
    step(matrix(), matrix(1))


def test_a_compiled_program_whose_lowering_is_gone_is_refused(tmp_path):
    compiled = jax.jit(f).lower(matrix(), matrix(1)).compile()
    gc.collect()  # garbage that is still there serves as well
    with pytest.raises(BadInput, match="pass the lowered program instead"):
        optimized(compiled, tmp_path)
    with pytest.raises(BadInput, match=r"write optimize\(jax.jit\(f\)\)"):
        optimized(f, tmp_path)


class FilterJit:
    """As `eqx.filter_jit` wraps: it can be lowered, and has the jitted function as an attribute."""

    def __init__(self, function):
        self.__name__ = function.__name__
        self._cached = jax.jit(function)

    def __call__(self, *arguments):
        return self._cached(*arguments)

    def lower(self, *arguments):
        return self._cached.lower(*arguments)


def test_a_librarys_wrapper_of_a_jitted_function_even_if_it_ran_before(tmp_path):
    function = FilterJit(f)
    for _ in range(3):  # so that JAX has its fast path
        before = function(matrix(), matrix(1))
    step = optimized(function, tmp_path)
    assert_bitwise(settle(step, matrix(), matrix(1))[0], before)
    (receipt,) = step.receipts()
    assert (receipt.verdict, receipt.chosen) == ("faster", "no fusion")


def test_a_pmapped_function_runs_as_it_is_and_says_so(tmp_path, caplog):
    def mapped(w, x):
        return f(w, x)

    function = jax.pmap(mapped)
    step = slipstream.optimize(function, folder=tmp_path)
    w, x = matrix()[None], matrix(1)[None]
    for _ in range(10):
        result = step(w, x)
    assert_bitwise(result, jax.pmap(mapped)(w, x))
    assert step.is_settled and step.receipts() == [] and step not in HOOKS.listeners
    assert step.report().startswith("optimize can't recompile mapped, which is from jax.pmap")
    assert caplog.text.count("with jax.jit and jax.shard_map; the function runs as it is") == 1
    assert step.lower(w, x).as_text()


@pytest.mark.parametrize("what", ["the callable", "the function", "the lowered program"])
def test_a_second_optimize_returns_the_first(tmp_path, caplog, what):
    function = jax.jit(f)
    if what == "the lowered program":
        function = function.lower(matrix(), matrix(1))
    step = optimized(function, tmp_path)
    again = slipstream.optimize(step if what == "the callable" else function, rounds=3)
    assert again is step and HOOKS.listeners == [step]
    settle(again, matrix(), matrix(1))
    assert [receipt.chosen for receipt in step.receipts()] == ["no fusion"]
    step.close()
    if what == "the function":
        assert slipstream.optimize(function, folder=tmp_path) is not step


def test_a_second_optimize_warns(tmp_path, caplog):
    def warned(w, x):
        return f(w, x)

    slipstream.optimize(slipstream.optimize(jax.jit(warned), folder=tmp_path))
    assert "optimize got warned, which is optimized already: the earlier optimize" in caplog.text


def test_two_jits_of_one_function_are_measured_by_one_optimize(tmp_path, caplog):
    def both(w, x):
        return f(w, x)

    first, second = (optimized(jax.jit(both), tmp_path / name) for name in "12")
    plain = {np.asarray(jax.jit(f)(matrix(), matrix(1))).tobytes()}
    plain |= {np.asarray(jax.jit(f, compiler_options=FLAGS)(matrix(), matrix(1))).tobytes()}
    results = []

    def call_second(result):
        results.extend([result, second(matrix(), matrix(1))])
        return matrix(), matrix(1)

    settle(first, matrix(), matrix(1), following=call_second)
    assert {np.asarray(result).tobytes() for result in results} <= plain
    assert len(first.receipts()) == 1
    assert second._controllers == {} and second.is_settled
    assert second.report().startswith("another optimize measures jit_both")


def test_a_function_that_ran_before(tmp_path):
    jitted = jax.jit(f)
    for _ in range(3):
        jitted(matrix(), matrix(1))
    step = optimized(jitted, tmp_path)
    settle(step, matrix(), matrix(1))
    assert step.receipts()[0].chosen == "no fusion"


def test_donated_arguments_pytrees_and_keywords(tmp_path):
    def update(state, *, batch):
        return {"w": state["w"] + 0.1 * f(state["w"], batch), "n": state["n"] + 1}

    def start():
        return {"w": matrix(), "n": jnp.zeros((), jnp.int32)}

    jitted = jax.jit(update, donate_argnums=0)
    step = optimized(jitted, tmp_path)
    state = start()
    end = time.monotonic() + LONGEST_S
    while not step.is_settled and time.monotonic() < end:
        before = state
        state = step(state, batch=matrix(1))
        assert before["w"].is_deleted()
        time.sleep(0.01)
    assert step.receipts()[0].chosen == "no fusion"
    chosen = jax.jit(update, donate_argnums=0, compiler_options=FLAGS)
    assert_bitwise(step(start(), batch=matrix(1)), chosen(start(), batch=matrix(1)))


def test_each_signature_has_a_loop_of_its_own(tmp_path):
    @functools.partial(jax.jit, static_argnames="times")
    def many(w, x, times):
        for _ in range(times):
            x = f(w, x)
        return x

    step = optimized(many, tmp_path)
    settle(step, matrix(), matrix(1), times=1)
    settle(step, matrix(), matrix(1), times=2)
    settle(step, matrix(n=16), matrix(1, n=16), times=2)
    assert [receipt.chosen for receipt in step.receipts()] == ["no fusion"] * 3
    expected = jax.jit(many, static_argnames="times", compiler_options=FLAGS)
    assert_bitwise(step(matrix(), matrix(1), times=2), expected(matrix(), matrix(1), times=2))


def test_shardings_stay(tmp_path):
    mesh = Mesh(np.array(jax.devices()[:1]), ("x",))
    rows = NamedSharding(mesh, PartitionSpec("x"))
    step = optimized(jax.jit(f, in_shardings=(rows, rows), out_shardings=rows), tmp_path)
    results = settle(step, matrix(), matrix(1))
    assert all(result.sharding == rows for result in [*results, step(matrix(), matrix(1))])
    assert step.receipts()[0].chosen == "no fusion"


def test_inside_another_jit_it_is_part_of_that(tmp_path):
    step = optimized(jax.jit(f), tmp_path)
    outer = jax.jit(lambda w, x: step(w, x) * 2)
    for _ in range(10):
        result = outer(matrix(), matrix(1))
    assert_bitwise(result, jax.jit(lambda w, x: jax.jit(f)(w, x) * 2)(matrix(), matrix(1)))
    assert step._controllers == {} and not step.is_settled
    assert jax.grad(lambda x: step(matrix(), x).sum())(matrix(1)).shape == (32, 32)


def test_without_jit_nothing_is_measured(tmp_path):
    step = optimized(jax.jit(f), tmp_path)
    with jax.disable_jit():
        for _ in range(10):
            result = step(matrix(), matrix(1))
    assert step._controllers == {}
    assert result.shape == (32, 32)


def test_other_programs_keep_their_fast_path(tmp_path, monkeypatch):
    step = optimized(jax.jit(f), tmp_path)
    step(matrix(), matrix(1))
    other = jax.jit(lambda x: x + 1)
    x = matrix()
    other(x)
    monkeypatch.setattr(HOOKS, "_calling", lambda *arguments: pytest.fail("Python was asked"))
    other(x)


def test_a_function_that_raises_raises(tmp_path):
    step = optimized(jax.jit(f), tmp_path)
    for _ in range(3):
        with pytest.raises(TypeError):
            step(matrix(), jnp.ones((3, 3)))
    settle(step, matrix(), matrix(1))
    with pytest.raises(TypeError):
        step(matrix(), jnp.ones((3, 3)))
    assert step.receipts()[0].chosen == "no fusion"


def test_threads_may_call_at_once(tmp_path):
    step = optimized(jax.jit(f), tmp_path)
    plain = {np.asarray(jax.jit(f)(matrix(), matrix(1))).tobytes()}
    plain |= {np.asarray(jax.jit(f, compiler_options=FLAGS)(matrix(), matrix(1))).tobytes()}
    seen, end = set(), time.monotonic() + LONGEST_S

    def work():
        while not step.is_settled and time.monotonic() < end:
            seen.add(np.asarray(step(matrix(), matrix(1))).tobytes())

    threads = [threading.Thread(target=work, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONGEST_S)
    assert not any(thread.is_alive() for thread in threads)
    assert step.is_settled and seen <= plain
    assert len(step._controllers) == 1


def test_a_call_that_comes_while_another_is_measured_waits_for_nobody(tmp_path):
    """A program's own callback may be what calls: to wait for the measured call is for ever.

    Calls of a jitted function wait for each other in JAX itself, while it has no fast path.
    """
    answers = []

    def timer(arm, run):
        other = threading.Thread(
            target=lambda: answers.append(step(matrix(), matrix(1)).shape), daemon=True
        )
        other.start()
        other.join(LONGEST_S)
        assert not other.is_alive(), "it waits for the call that waits for it"
        return run(), 1.0

    step = optimized(jax.jit(f).lower(matrix(), matrix(1)), tmp_path, timer)
    settle(step, matrix(), matrix(1))
    assert len(answers) > 16 and set(answers) == {(32, 32)}
    assert step.receipts()[0].verdict == "no different"


def test_an_arm_that_fails_at_run_time_is_out(tmp_path, caplog):
    def timer(arm, run):
        if arm.name == "no fusion":
            raise RuntimeError("RESOURCE_EXHAUSTED: planted")
        return run(), 1.0

    step = optimized(jax.jit(f, donate_argnums=0), tmp_path, timer)
    results = settle(step, matrix(), matrix(1), following=lambda result: (result, matrix(1)))
    assert len(results) > 3
    (receipt,) = step.receipts()
    assert receipt.chosen == "original"
    assert receipt.verdict == "can't tell" and "RESOURCE_EXHAUSTED" in receipt.why


@pytest.mark.parametrize("calls_host", [False, True])
def test_a_step_that_may_have_begun_is_not_done_again(tmp_path, calls_host):
    """JAX may count arguments as whole that a program which failed half-way has written over."""

    def timer(arm, run):
        if arm.name == "no fusion":
            raise RuntimeError("INTERNAL: planted, before JAX took the arguments")
        return run(), 1.0

    def talking(w, x):
        jax.debug.callback(lambda _: None, w[0, 0])
        return f(w, x)

    jitted = jax.jit(talking) if calls_host else jax.jit(f, donate_argnums=0)
    step = optimized(jitted, tmp_path, timer)
    with pytest.raises(RuntimeError, match="INTERNAL: planted"):
        settle(step, matrix(), matrix(1), following=lambda result: (result, matrix(1)))


def test_an_arm_whose_result_is_bad_is_out_and_its_step_is_done_again(tmp_path, caplog):
    def timer(arm, run):
        result = run()
        if arm.name == "no fusion":
            raise RuntimeError("INTERNAL: planted, after it ran")
        return result, 1.0

    step = optimized(jax.jit(f), tmp_path, timer)
    plain = jax.jit(f)(matrix(), matrix(1))
    for result in settle(step, matrix(), matrix(1)):
        assert_bitwise(result, plain)
    assert step.receipts()[0].chosen == "original"


def test_an_arm_that_took_its_arguments_with_it_is_the_jobs_error(tmp_path):
    def timer(arm, run):
        run()
        if arm.name == "no fusion":
            raise RuntimeError("INTERNAL: planted, after it ran")
        return run(), 1.0

    step = optimized(jax.jit(f, donate_argnums=0), tmp_path, timer)
    with pytest.raises(RuntimeError, match="planted, after it ran"):
        settle(step, matrix(), matrix(1), following=lambda result: (result, matrix(1)))


def test_a_recompile_that_fails_is_noted(tmp_path, monkeypatch):
    def fails(self, flags, costs=None):
        raise RuntimeError("planted")

    monkeypatch.setattr(CompiledProgram, "recompile", fails)
    step = optimized(jax.jit(f), tmp_path)
    settle(step, matrix(), matrix(1))
    (receipt,) = step.receipts()
    assert (receipt.verdict, receipt.chosen) == ("can't tell", "original")
    assert "no fusion: planted" in receipt.why


def test_a_bug_of_ours_while_comparing_ends_the_loop_by_name(tmp_path, caplog):
    """It does not pass for a program that failed, and the job's calls all return."""

    def timer(arm, run):
        result = run()
        if arm.name == "no fusion":
            raise KeyError("planted")
        return result, 1.0

    step = optimized(jax.jit(f), tmp_path, timer)
    results = settle(step, matrix(), matrix(1))
    for result in results:
        assert np.isfinite(result).all()
    (receipt,) = step.receipts()
    assert receipt.why == "internal error: KeyError: 'planted'" and receipt.chosen == "original"
    assert not any(arm["error"] for arm in receipt.arms)
    assert "Traceback" in caplog.text and "KeyError: 'planted'" in caplog.text
    wait_until((tmp_path / "receipt.json").exists)


def test_a_bug_of_ours_while_compiling_is_not_one_arm_less(tmp_path, monkeypatch, caplog):
    def fails(program, flags, costs=None):
        raise TypeError("planted")

    monkeypatch.setattr(CompiledProgram, "recompile", fails)
    step = optimized(jax.jit(f), tmp_path)
    settle(step, matrix(), matrix(1))
    (receipt,) = step.receipts()
    assert receipt.why == "TypeError: planted" and receipt.chosen == "original"
    assert "Traceback" in caplog.text


def test_without_an_order_that_arm_is_left_out_and_says_why(tmp_path):
    timer = planted({"original": 1.0, "no fusion": 0.9})
    step = optimized(jax.jit(f), tmp_path, timer, variants=(OTHER, SCHEDULE))
    settle(step, matrix(), matrix(1))
    (receipt,) = step.receipts()
    arms = {arm["name"]: arm for arm in receipt.arms}
    assert "an order is for GPUs, and this program runs on cpu" in arms["schedule"]["error"]
    assert arms["schedule"]["uses_order"] and arms["schedule"]["is_obeyed"] is None
    assert not arms["no fusion"]["error"]


def test_an_arm_that_does_not_fit_is_not_run(tmp_path, monkeypatch):
    monkeypatch.setattr(preparing, "free_bytes", lambda watched: -1)
    step = optimized(jax.jit(f), tmp_path)
    settle(step, matrix(), matrix(1))
    (receipt,) = step.receipts()
    assert receipt.chosen == "original" and "more than the original" in receipt.why


def test_a_profiler_that_is_taken_leaves_all_as_it_was(tmp_path):
    jax.profiler.start_trace(str(tmp_path / "own"))
    try:
        step = optimized(jax.jit(f), tmp_path)
        settle(step, matrix(), matrix(1))
    finally:
        jax.profiler.stop_trace()
    (receipt,) = step.receipts()
    assert (receipt.verdict, receipt.chosen) == ("can't tell", "original")
    assert "a profiler session is already open" in receipt.why


def test_a_disk_that_is_full_ends_the_loop_only(tmp_path):
    (tmp_path / "file").write_text("")
    step = optimized(jax.jit(f), tmp_path / "file" / "folder")
    settle(step, matrix(), matrix(1))
    assert step.receipts()[0].chosen == "original"


def test_a_receipt_that_cannot_be_written_changes_nothing(tmp_path, monkeypatch, caplog):
    from slipstream.experiment.receipt import Receipt

    def fails(self, folder):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Receipt, "write", fails)
    step = optimized(jax.jit(f), tmp_path)
    settle(step, matrix(), matrix(1))
    assert step.receipts()[0].chosen == "no fusion"
    assert_bitwise(
        step(matrix(), matrix(1)), jax.jit(f, compiler_options=FLAGS)(matrix(), matrix(1))
    )
    wait_until(lambda: "the receipt was not written" in caplog.text)
    assert "No space left" in caplog.text


@pytest.mark.parametrize("calls", [1, 2, 3])
def test_closing_at_any_time(tmp_path, calls):
    step = optimized(jax.jit(f), tmp_path)
    for _ in range(calls):
        step(matrix(), matrix(1))
    step.close()
    assert step.is_settled and step not in HOOKS.listeners
    (receipt,) = step.receipts()
    assert receipt.chosen == "original" and "closed" in receipt.why
    assert_bitwise(step(matrix(), matrix(1)), jax.jit(f)(matrix(), matrix(1)))
    with contextlib.suppress(Exception):
        jax.profiler.start_trace(str(tmp_path / "again"))
        jax.profiler.stop_trace()
    session = ProfilerSession(tmp_path / "ours")
    session.start()
    session.abandon()


def test_the_public_name_writes_a_receipt_where_it_was_told(tmp_path):
    step = slipstream.optimize(jax.jit(f), folder=tmp_path, start=1, steps=1, rounds=8)
    settle(step, matrix(), matrix(1))
    (receipt,) = step.receipts()
    wait_until((tmp_path / "receipt.json").exists)
    assert read_receipt(tmp_path).chosen == receipt.chosen
    assert [arm["name"] for arm in receipt.arms] == [
        "original", "costs", "no command buffers", "costs, no command buffers",
    ]  # fmt: skip
    assert step.lower(matrix(), matrix(1)).as_text()
    assert "still measured" in slipstream.optimize(jax.jit(f)).report()


def test_a_url_is_refused_not_made_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match="optimize works in a local folder, and s3://b/x"):
        slipstream.optimize(jax.jit(lambda x: x), folder="s3://b/x")
    assert list(tmp_path.iterdir()) == []
