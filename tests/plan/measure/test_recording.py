"""Costs of a measured candidate flow back into the predictions of the others."""

from contextlib import closing

import pytest

from slipstream.compiler.combinations import combinations
from slipstream.compiler.compile import machine_of
from slipstream.costs.table import Cost, CostTable, ProgramCosts
from slipstream.plan.measure.measured import MEASURED_WITH, open_measured, settings_of_candidate
from slipstream.plan.measure.recording import simulate_again
from slipstream.plan.plan_folder import read_plan
from slipstream.plan.plans import show
from slipstream.plan.search.search import open_study
from slipstream.plan.space.search_space import SearchSpace
from slipstream.plan.space.space import space_of
from slipstream.results.planning import MEASURED
from slipstream.results.tuning import OK
from slipstream.simulate.costing import costing
from slipstream.simulate.prediction import predict
from slipstream.simulate.recorded import RecordedCosts
from slipstream.tune.outcome import Outcome
from slipstream.tune.search.seeds import SEARCH, Suggestion

JAXLIB = "0.11.2"
SLOWER = 1.5
"""than the models say, in the recording"""


def slow_costs(program, machine) -> RecordedCosts:
    costs = {
        name: Cost(name, one.us * SLOWER, 5, False)
        for name, one in costing(program, machine, None).items()
    }
    table = CostTable((ProgramCosts(program.fingerprint, program.name, costs),), "percentile:50")
    return RecordedCosts(table, table, program)


def test_other_candidates_are_simulated_with_recorded_costs(planned):
    works = (1, 2)
    machine = machine_of("8xH200")
    folder = planned([({"work": n}, 1.0, 64.0) for n in works])
    config = read_plan(folder)
    keywords = {n: {"fsdp": 8, "work": n, "trouble": "none"} for n in works}
    with combinations(config.target, machine) as session:
        programs = {n: session.compile(keywords[n]).program for n in works}
    steps = {n: predict(programs[n], machine).step_us for n in works}
    folder = planned([({"work": n}, steps[n], 64.0) for n in works])

    space = SearchSpace(config.choices, space_of(config.choices, machine, ""))
    (plan,) = show(folder).machines
    place = (folder, config, space, machine.spec, JAXLIB)
    simulate_again(
        place, machine, slow_costs(programs[1], machine), plan.candidates[0], plan.candidates
    )
    with closing(open_study(folder, config, space, machine.spec)) as study:
        study.note(MEASURED_WITH, JAXLIB)
    assert show(folder).machines[0].agreement is None

    with closing(open_measured(*place)) as study:
        for one in plan.candidates:
            study.enqueue([Suggestion(settings_of_candidate(one), SEARCH)])
            step = one.step_us * SLOWER
            study.tell(study.ask(), Outcome(OK, step, basis="measured", value=step / 64))
    (again,) = show(folder).machines
    assert [one.basis for one in again.candidates] == [MEASURED, MEASURED]
    # That of the second one, which was not recorded.
    assert again.candidates[1].predicted_us == pytest.approx(steps[2] * SLOWER, rel=0.1)
    assert again.agreement.mean_error < 0.1
    assert "costs from a recording" in again.agreement.text
