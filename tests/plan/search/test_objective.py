"""What a step is worth."""

import pytest

from slipstream.errors import BadInput
from slipstream.machines.topology import machine
from slipstream.plan.search.objective import Objective, check_objective
from slipstream.results.planning import PER_DOLLAR, TIME

H100 = machine("2x8xH100")


def test_work_is_what_the_arguments_show_or_what_is_said():
    assert Objective().work_in({"batch": 4}, H100, 8192.0) == 8192
    said = Objective(work="batch * devices * 100")
    assert said.work_in({"batch": 4}, H100, 8192.0) == 4 * 16 * 100
    with pytest.raises(BadInput, match="which of the arguments is the batch can't be told.*--work"):
        Objective().work_in({}, H100, None)


def test_a_global_batch_takes_a_whole_number_of_steps():
    objective = Objective(TIME, global_batch=4096.0)
    assert [objective.accumulated(work) for work in (4096, 1024)] == [1, 4]
    for work in (3000, 8192):
        with pytest.raises(BadInput, match=f"a step does {work:,}.*global batch of 4,096"):
            objective.accumulated(work)
    assert Objective().accumulated(3000) == 1


def test_prices_are_those_of_the_gpu_or_of_any():
    assert Objective().price_per_hour(H100) is None
    assert Objective(prices={"": 2.0}).price_per_hour(H100) == 32
    assert Objective(prices={"": 2.0, "H100": 3.0}).price_per_hour(H100) == 48


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        (Objective("speed"), "no objective 'speed'"),
        (Objective(TIME), "needs the work of a batch: --global-batch"),
        (Objective(global_batch=1.0), "--objective time"),
        (Objective(PER_DOLLAR), r"--price H100=2\.50"),
        (Objective(PER_DOLLAR, prices={"H200": 1.0}), r"--price H100=2\.50"),
        (Objective(prices={"h10": 1.0}), "--price h10=…: there is no GPU or TPU 'h10'.*mean H100"),
    ],
)
def test_what_an_objective_needs_is_asked_for(objective, message):
    with pytest.raises(BadInput, match=message):
        check_objective(objective, {"H100"})


def test_objectives_that_have_what_they_need_pass():
    for one in (
        Objective(),
        Objective(TIME, global_batch=8.0),
        Objective(PER_DOLLAR, prices={"": 1.0}),
        Objective(prices={"B200": 1.0, "v5e": 1.0}),
    ):
        assert check_objective(one, {"H100"}) is one
