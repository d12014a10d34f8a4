"""Hooks in JAX: the job notices nothing, and no program is kept that JAX has dropped."""

import copy
import gc
import threading
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src import compiler, pjit
from jax._src.interpreters import pxla

from slipstream.errors import Missing
from slipstream.jaxhooks import program_registry as module
from slipstream.jaxhooks.hooks import HOOKS


@pytest.fixture(autouse=True)
def no_traces_left():
    yield
    HOOKS.uninstall()
    jax.clear_caches()


class Heard:
    """A listener that notes what it hears."""

    def __init__(self, around=lambda program, run: run()):
        self.compiled, self.called = [], []
        self.around = around

    def on_compile(self, program):
        self.compiled.append(program.name)

    def on_call(self, program, arguments, run):
        self.called.append(program.name)
        return self.around(program, run)


def watched(name):
    return next(program for program in HOOKS.programs if program.name == name)


def test_programs_are_heard_compiled_and_called():
    listener = Heard()
    HOOKS.add(listener)

    def heard(x):
        return x * 2

    for _ in range(3):
        result = jax.jit(heard)(jnp.arange(4.0))
    assert result.tolist() == [0, 2, 4, 6]
    assert listener.compiled.count("jit_heard") == 1
    assert listener.called.count("jit_heard") == 3
    program = watched("jit_heard")
    assert program.calls == 3 and program.processes == (0,)
    fresh = program.recompile({"xla_disable_hlo_passes": "fusion"})
    assert fresh is not program.original


def test_jax_is_given_back_as_it_was():
    parts = (
        lambda: compiler.compile_or_get_cached,
        lambda: pxla.ExecuteReplicated.__call__,
        lambda: pxla.ExecuteReplicated.__init__,
        lambda: pjit._get_fastpath_data,
        lambda: pjit._need_to_rebuild_with_fdo,
        lambda: pxla.MeshExecutable.create_cpp_call,
        lambda: pxla.MeshComputation.compile,
    )
    before = [part() for part in parts]
    HOOKS.add(Heard())
    assert all(part() is not old for part, old in zip(parts, before, strict=True))
    HOOKS.uninstall()
    assert all(part() is old for part, old in zip(parts, before, strict=True))


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_listener_that_raises_changes_nothing(when, caplog):
    def around(program, run):
        if when == "after":
            run()
        raise ValueError("planted")

    HOOKS.add(Heard(around))
    step = jax.jit(lambda x: x + 1, donate_argnums=0)
    x = step(step(jnp.zeros(3)))
    assert x.tolist() == [2, 2, 2]
    assert "measuring stopped; the job goes on" in caplog.text


def test_an_error_of_the_job_is_the_jobs():
    HOOKS.add(Heard())

    def callback(x):
        raise KeyError("the job's own")

    step = jax.jit(lambda x: jax.pure_callback(callback, jax.ShapeDtypeStruct((), x.dtype), x))
    with pytest.raises(Exception, match="the job's own"):
        step(1.0).block_until_ready()


def test_what_a_listener_runs_itself_is_nobodys_step():
    inner = jax.jit(lambda x: x * 3)
    listener = Heard(lambda program, run: (inner(jnp.ones(2)), run())[1])
    HOOKS.add(listener)

    def outer(x):
        return x - 1

    jax.jit(outer)(jnp.ones(2))
    assert "jit_outer" in listener.called and "jit__lambda" not in listener.called


def test_each_thread_runs_what_it_was_told_and_jaxs_own_objects_stay():
    def twice(x):
        return x * 2

    def around(program, run):
        if program.name != "jit_twice":
            return run()
        with program.lock:
            program.run_with(other if threading.current_thread().name == "b" else program.original)
            return run()

    HOOKS.add(Heard())
    step = jax.jit(twice)
    step(jnp.ones(3))
    other = watched("jit_twice").recompile({"xla_disable_hlo_passes": "fusion"})
    HOOKS.listeners[0].around = around
    results, errors = [], []

    def work():
        try:
            for _ in range(50):
                results.append(step(jnp.ones(3)).tolist())
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, name=name) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == [] and results == [[2.0] * 3] * 100
    program = watched("jit_twice")
    assert program.calls == 101
    assert all(user.xla_executable is program.original for user in program.users)


def test_another_executable_costs_a_copy_only_when_it_changes(monkeypatch):
    """A copy at each call would make every arm but the original look slower."""

    def thrice(x):
        return x * 3

    HOOKS.add(Heard())
    step = jax.jit(thrice)
    step(jnp.ones(3))
    program = watched("jit_thrice")
    other = program.recompile({})
    copies, plain = [], copy.copy
    monkeypatch.setattr("copy.copy", lambda one: copies.append(one) or plain(one))
    for executable in (other, program.original, other):
        for _ in range(3):
            program.run_with(executable)
            assert step(jnp.ones(3)).tolist() == [3.0] * 3
    assert len([one for one in copies if one in program.users]) == 2
    # While they are compared, JAX's own executable is run in the same way.
    copies.clear()
    program.is_compared = True
    for executable in (program.original, other):
        for _ in range(3):
            program.run_with(executable)
            step(jnp.ones(3))
    assert len([one for one in copies if one in program.users]) == 2
    program.is_compared = False
    # Once it is not run any more, nothing keeps it in memory.
    program.run_with(program.original)
    assert program.runner is None


def test_programs_that_jax_lets_go_of_are_let_go_of():
    HOOKS.add(Heard())

    def short_lived(x):
        return x + 5

    step = jax.jit(short_lived)
    step(jnp.ones(2))
    program = weakref.ref(watched("jit_short_lived"))
    del step, short_lived
    jax.clear_caches()
    gc.collect()
    assert program() is None
    assert "jit_short_lived" not in [found.name for found in HOOKS.programs]


def test_an_id_that_is_used_again_is_not_taken_for_the_program():
    HOOKS.add(Heard())
    jax.jit(lambda x: x)(jnp.ones(2))
    program = HOOKS.programs[0]
    stranger = object()
    HOOKS.registry.add_executable(stranger, program)
    assert HOOKS.find(stranger) is None
    assert HOOKS.find(program.original) is program


def test_thousands_of_programs_do_not_fill_the_memory(monkeypatch):
    HOOKS.add(Heard())
    kept = jax.jit(lambda x: x + 0.5)
    for _ in range(5):
        kept(jnp.ones(2))
    monkeypatch.setattr(module, "KEPT_BYTES", 20_000)
    functions = [jax.jit(lambda x, n=n: jnp.tanh(x) * n) for n in range(40)]
    for function in functions:
        function(jnp.ones(2))
    sizes = [len(program.stablehlo) for program in HOOKS.programs]
    assert len(sizes) > 40 and sum(sizes) <= 20_000
    dropped = next(program for program in HOOKS.programs if not program.stablehlo)
    with pytest.raises(Missing, match="can't be compiled again"):
        dropped.recompile({})


def test_a_program_compiled_before_anyone_listened_is_met_when_it_runs_again():
    def early(x):
        return jnp.tanh(x) @ x

    x = jnp.asarray(np.random.default_rng(0).normal(size=(8, 8)), jnp.float32)
    expected = jax.jit(early)(x)
    listener = Heard()
    HOOKS.add(listener)
    step = jax.jit(early)
    step._clear_cache()
    assert step(x).tobytes() == expected.tobytes()
    assert "jit_early" in listener.called
    executable = watched("jit_early").recompile({})
    assert executable is not watched("jit_early").original


def test_ahead_of_time_programs_get_their_fast_path_back(monkeypatch):
    listener = Heard()
    HOOKS.add(listener)
    compiled = jax.jit(lambda x: x * 7).lower(jnp.ones(2)).compile()
    assert compiled(jnp.ones(2)).tolist() == [7, 7]
    assert len([name for name in listener.called if "lambda" in name]) == 1
    HOOKS.remove(listener)
    compiled(jnp.ones(2))
    x = jnp.ones(2)
    monkeypatch.setattr(HOOKS, "_calling", lambda *arguments: pytest.fail("Python was asked"))
    compiled(x)


def test_without_listeners_nothing_is_kept():
    listener = Heard()
    HOOKS.add(listener)
    HOOKS.remove(listener)
    jax.jit(lambda x: x * 11)(jnp.ones(2))
    assert HOOKS.programs == []


def test_options_of_jax_are_kept(tmp_path):
    listener = Heard()
    HOOKS.add(listener)

    def plain(x):
        return x + 2

    with jax.disable_jit():
        assert jax.jit(plain)(jnp.ones(2)).tolist() == [3, 3]
    assert "jit_plain" not in listener.called
    with jax.debug_nans(True), pytest.raises(FloatingPointError):
        jax.jit(lambda x: jnp.log(x))(-jnp.ones(2))
    with jax.no_tracing(), pytest.raises(RuntimeError, match="no_tracing"):
        jax.jit(lambda x: x * 13)(jnp.ones(2))
