"""Which programs are hot, by planted times."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from slipstream.jaxhooks.compiled_program import CompiledProgram
from slipstream.run.agent.hot_program import PATIENCE, HotProgramChooser, function_name


def program(name, works=True):
    return CompiledProgram(name, b"dot_general" if works else b"add", 0.1, object(), object())


class Job:
    """Calls programs, each of which takes as long as its name says."""

    def __init__(self, start=4, functions=(), **times_s):
        self.now = 100.0
        self.programs = {name: program(f"jit_{name}") for name in times_s}
        self.times_s = times_s
        self.chooser = HotProgramChooser(start, functions, clock=lambda: self.now)

    def call(self, name):
        """The name of the program to be measured from here on, if there is one."""
        one, seconds = self.programs[name], self.times_s[name]
        is_timed = self.chooser.is_timed(one)
        self.now += seconds
        self.chooser.called(one, seconds if is_timed else None)
        if self.chooser.is_next(one):
            self.chooser.begin(one)
            return name
        return None

    def loop(self, *names, most=400):
        """Call programs in turn until one is to be measured: its name, and the turn."""
        for number in range(1, most):
            for name in names:
                if self.call(name):
                    return name, number
        return None

    def end(self, name):
        self.chooser.end(self.programs[name])

    def share(self, name):
        return self.chooser.share(self.programs[name])


def test_the_program_that_takes_most_time_is_hot():
    job = Job(start=4, step=0.1, helper=0.001)
    assert job.loop("helper", "step") == ("step", 4)
    job = Job(start=4, step=0.001, encoder=0.1)
    assert job.loop("encoder", "step") == ("encoder", 4)


def test_the_size_of_a_program_says_nothing():
    job = Job(small=0.1, large=0.001)
    job.programs["large"].stablehlo *= 1000
    assert job.loop("large", "small") == ("small", 4)


def test_a_program_without_products_has_to_wait():
    job = Job(start=4, loader=0.1, step=0.01)
    job.programs["loader"] = program("jit_loader", works=False)
    assert job.loop("loader", most=PATIENCE * 4) is None
    assert job.loop("loader") == ("loader", 1)


def test_a_data_loader_called_before_the_first_step_is_not_chosen():
    job = Job(start=4, loader=0.001, step=0.1)
    job.programs["loader"] = program("jit_loader", works=False)
    assert job.loop("loader", most=50) is None
    job.chooser.compiled(job.programs["step"])
    assert job.loop("loader", "step") == ("step", 4)


def test_a_loader_in_a_thread_of_its_own_is_not_chosen_while_the_step_is_traced():
    job = Job(start=4, loader=0.1, init=0.001, step=0.5)
    job.programs["loader"] = program("jit_loader", works=False)
    job.call("init")
    assert aside(lambda: job.loop("loader")) is None
    assert job.loop("step") == ("step", 4)


def test_a_job_in_a_thread_may_have_no_products():
    job = Job(start=4, stencil=0.1)
    job.programs["stencil"] = program("jit_stencil", works=False)
    assert aside(lambda: job.loop("stencil"))[0] == "stencil"


def test_a_step_that_came_after_a_measured_augmentation_counts_more():
    job = Job(start=4, augment=0.001, step=0.1)
    assert job.loop("augment") == ("augment", 4)
    for _ in range(50):  # a look at what it does, before any training
        job.call("augment")
    job.end("augment")
    job.now += 30.0  # the step is compiled
    assert job.loop("step", most=100)[0] == "step"
    for _ in range(20):
        job.call("step")
        job.now += 0.02  # augmentation, which nobody watches any more
    job.end("step")
    assert job.share("step") > 0.7
    assert job.share("augment") < 0.3


def test_a_busy_host_makes_no_short_program_hot():
    """Eight calls a step of 0.1 ms each: a host that is busy elsewhere may take 5 ms for some."""
    helper, step = program("jit_helper"), program("jit_step")
    chooser = HotProgramChooser(4, clock=lambda: 0.0)
    for _ in range(4):
        for call in range(8):
            chooser.called(helper, 5e-3 if call % 3 else 1e-4)
        chooser.called(step, 4e-3)
    assert (chooser.is_next(helper), chooser.is_next(step)) == (False, True)


def aside(call):
    """What a call returns in another thread than the main one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()


def test_what_ran_once_blocks_nobody():
    job = Job(start=4, init=30.0, step=0.001)
    job.call("init")
    job.call("init")  # its first call is not timed
    assert job.loop("step", most=100)[0] == "step"


def test_nothing_is_hot_while_something_is_compiled():
    job = Job(start=3, step=0.1)
    for _ in range(10):
        assert job.call("step") is None
        assert job.call("step") is None
        job.chooser.compiled(program("jit_other"))
    assert job.loop("step") == ("step", 3)


def test_a_step_takes_over_from_an_evaluation_that_came_first():
    job = Job(start=4, evaluate=0.1, step=0.3)
    assert job.loop("evaluate") == ("evaluate", 4)
    job.loop("evaluate", most=20)
    job.chooser.compiled(job.programs["step"])
    assert job.loop("step") == ("step", 4)
    job.loop("step", "step", "step", "evaluate", most=20)
    assert job.share("step") > 0.8


def test_programs_that_take_about_as_long_do_not_take_over_from_each_other():
    job = Job(start=4, first=0.1, second=0.11)
    chosen, _ = job.loop("first", "second")
    assert job.loop("first", "second", most=100) is None
    job.end(chosen)
    other = {"first": "second", "second": "first"}[chosen]
    assert job.loop(other) == (other, 1)


def test_all_programs_of_a_step_that_matter_have_their_turn():
    """Gradient and update apart, and a metric that takes no time."""
    job = Job(start=4, gradient=0.06, update=0.03, metric=0.0005)
    job.programs["update"] = program("jit_update", works=False)
    names = ("gradient", "update", "metric")
    assert job.loop(*names) == ("gradient", 4)
    assert job.loop(*names, most=30) is None
    job.end("gradient")
    assert job.chooser.has_more
    assert job.loop("update", "metric") == ("update", 1)
    job.end("update")
    assert not job.chooser.has_more
    assert job.loop("metric", most=100) is None
    assert job.chooser.is_negligible(job.programs["metric"])
    assert job.share("gradient") == pytest.approx(0.06 / 0.0905, rel=0.05)
    calls = job.chooser.calls_per(job.programs["update"], job.programs["gradient"])
    assert calls == pytest.approx(1, rel=0.05)


def test_a_program_that_comes_later_is_measured_once_it_matters():
    job = Job(start=4, step=0.1, finetune=0.1)
    assert job.loop("step") == ("step", 4)
    job.loop("step", most=50)
    job.end("step")
    job.chooser.compiled(job.programs["finetune"])
    _, number = job.loop("finetune")
    assert number < 20


def test_a_rare_evaluation_is_not_measured():
    job = Job(start=4, step=0.1, evaluate=0.02)
    assert job.loop("step") == ("step", 4)
    job.loop("step", most=50)
    job.end("step")
    job.chooser.compiled(job.programs["evaluate"])
    for _ in range(20):
        job.now += 10  # steps, which run unseen
        assert job.loop("evaluate", most=11) is None


def test_the_user_decides():
    job = Job(functions=["jit_small", "other"], large=0.1, small=0.001)
    assert job.loop("large", "small") == ("small", 4)
    assert job.chooser.has_called_chosen
    job.end("small")
    assert job.loop("large", "small", most=100) is None
    assert not Job(functions=["step"], large=0.1).chooser.has_called_chosen


def test_a_step_that_was_compiled_twice_counts_once_in_messages():
    """The first call has weakly typed arguments, and a program of its own."""
    job = Job(step=0.1)
    job.programs["weak"], job.times_s["weak"] = program("jit_step"), 0.1
    job.call("weak")
    assert job.loop("step") == ("step", 4)
    assert job.chooser.busiest() == ("jit_step", 5)


@pytest.mark.parametrize(
    ("name", "function"),
    [("jit_step", "step"), ("pmap_step", "step"), ("jit__step_", "step"), ("step", "step")],
)
def test_names_of_functions(name, function):
    assert function_name(name) == function


def test_small_conversions_while_a_model_is_built_are_not_chosen():
    """Keras makes hundreds of arrays, one by one, before the first step."""
    job = Job(start=4, convert=0.0001)
    job.programs["convert"] = program("jit_convert_element_type", works=False)
    for _ in range(300):
        job.now += 0.001  # Python
        assert job.call("convert") is None
