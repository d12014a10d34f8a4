"""Which program is hot."""

from slipstream.jaxhooks.compiled_program import CompiledProgram
from slipstream.run.agent.hot_program import PATIENCE, HotProgramChooser


def program(name, size, works=True):
    text = (b"dot_general" if works else b"add") + b" " * size
    return CompiledProgram(name, text, 0.1, object(), object())


def calls_until_hot(chooser, *programs, most=1000):
    """Call programs in turn until one is hot: its name, and the round."""
    for number in range(1, most):
        for one in programs:
            if chooser.called(one):
                return one.name, number
    return None


def test_the_step_is_hot_after_its_first_calls():
    assert calls_until_hot(HotProgramChooser(4), program("jit_step", 100)) == ("jit_step", 4)


def test_a_helper_without_work_waits():
    helper = program("jit__normal", 5000, works=False)
    assert calls_until_hot(HotProgramChooser(4), helper) == ("jit__normal", 4 * PATIENCE)
    step = program("jit_step", 100)
    assert calls_until_hot(HotProgramChooser(4), helper, step) == ("jit_step", 4)


def test_a_small_program_waits_for_a_large_one_that_runs():
    chooser, step, init = HotProgramChooser(4), program("jit_step", 1000), program("jit_loss", 100)
    assert calls_until_hot(chooser, init, step) == ("jit_step", 4)
    # One that ran once and never again blocks nobody for good.
    chooser = HotProgramChooser(2)
    chooser.called(step)
    assert calls_until_hot(chooser, init) == ("jit_loss", 2 * PATIENCE)


def test_a_step_that_was_compiled_twice_is_hot_at_once():
    """The first call has weakly typed arguments, and a program of its own, a little larger."""
    chooser = HotProgramChooser(4)
    chooser.called(program("jit_step", 110))
    assert calls_until_hot(chooser, program("jit_step", 100)) == ("jit_step", 4)
    assert chooser.busiest() == ("jit_step", 5)


def test_nothing_is_hot_while_something_is_compiled():
    chooser, step = HotProgramChooser(3), program("jit_step", 100)
    for _ in range(10):
        assert not chooser.called(step)
        assert not chooser.called(step)
        chooser.compiled(program("jit_other", 50))
    assert calls_until_hot(chooser, step) == ("jit_step", 3)
