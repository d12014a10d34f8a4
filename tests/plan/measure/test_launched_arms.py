"""Combinations of a command, measured by launching it."""

import sys
from contextlib import closing

from slipstream.compiler.compile import machine_of
from slipstream.plan.measure.measure import measure
from slipstream.plan.measure.selection import MeasureOptions
from slipstream.plan.plan_folder import PlanConfig, write_plan
from slipstream.plan.search.objective import Objective
from slipstream.plan.search.search import open_study
from slipstream.plan.space.choices import Choice
from slipstream.plan.space.search_space import SearchSpace
from slipstream.plan.space.space import space_of
from slipstream.results.planning import MEASURED
from slipstream.results.tuning import CRASH, OK
from slipstream.tune.outcome import Outcome
from slipstream.tune.search.seeds import SEARCH, Suggestion

TRAIN = """
import sys, pathlib
import jax, jax.numpy as jnp, numpy as np

folder, work = pathlib.Path(sys.argv[1]), int(sys.argv[2])
if work == 3:
    raise ValueError("three is odd")
(folder / "checkpoint").write_text("of this run")

@jax.jit
def step(x):
    for _ in range(work):
        x = jnp.tanh(x @ x)
    return x

x = np.ones((256, 256), np.float32)
while True:
    step(x).block_until_ready()
"""
QUICK = MeasureOptions(best=3, bad=0, rounds=1, steps=2, timeout_s=120)


def test_a_command_is_measured_run_by_run(tmp_path, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "")
    (tmp_path / "train.py").write_text(TRAIN)
    command = (sys.executable, str(tmp_path / "train.py"), "{folder}", "{work}")
    choices = (Choice("work", (1, 3, 40), default=1, has_default=True),)
    config = PlanConfig(
        "train.py", ("1xH100",), choices, Objective(work="1", unit="samples"), "0.10.2",
        command=command,
    )  # fmt: skip
    folder = tmp_path / "plan"
    write_plan(folder, config)
    space = SearchSpace(choices, space_of(choices, machine_of("1xH100"), ""))
    with closing(open_study(folder, config, space, "1xH100")) as study:
        for work in (1, 3, 40):  # predicted upside down
            study.enqueue([Suggestion({"work": str(work)}, SEARCH)])
            study.tell(study.ask(), _predicted(1e6 / work, str(work)))
    (machine,) = measure(folder, QUICK, use_gpu=False).machines
    by_work = {one.choices["work"]: one for one in machine.candidates}
    assert machine.best.choices == {"work": 1} and machine.best.basis == MEASURED
    assert by_work[40].step_us > by_work[1].step_us > 0 and by_work[40].status == OK
    assert by_work[3].status == CRASH and "three is odd" in by_work[3].why
    # Only the log of the run that failed stays.
    (log,) = (folder / "runs").glob("*/log.txt")
    assert "three is odd" in log.read_text()


def _predicted(step_us, program):
    return Outcome(
        OK,
        step_us=step_us,
        low_us=step_us * 0.9,
        high_us=step_us * 1.1,
        memory_bytes=20_000,
        program=program,
        value=step_us,
        parts_us={"products": step_us},
        details={"work": 1.0, "unit": "samples", "limits": []},
    )
