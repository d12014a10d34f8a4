"""`slipstream schedule` as text."""

from dataclasses import replace

from scheduling_results import LIMIT, made_up_scheduling
from slipstream.outputs.terminal.compiled.schedule import render_schedule, schedule_json
from slipstream.results.scheduling import COSTS


def test_the_orders_what_moved_and_what_was_tried():
    shown = render_schedule(made_up_scheduling(), 80).plain
    assert max(map(len, shown.splitlines())) <= 80
    assert "-35.0% against XLA's order, -27.8% against XLA's with costs; closes 83%" in " ".join(
        shown.split()
    )
    assert f"{LIMIT} = 2" in shown
    assert "the flags alone give 1.9 ms in XLA's own order" in shown
    assert "gather <W>" in shown and "900 µs → 100 µs" in shown
    assert "read back from what XLA compiled: it runs in this order" in shown
    assert "1 program could not be searched: XLA: out of memory" in shown


def test_an_order_that_is_not_obeyed_says_so():
    shown = render_schedule(replace(made_up_scheduling(), is_obeyed=False), 80).plain
    assert "does NOT run in this order" in shown


def test_costs_that_come_near():
    found = replace(made_up_scheduling(), how=COSTS, nearness=0.9, asked_us=1250.0, is_obeyed=False)
    shown = " ".join(render_schedule(found, 80).plain.split())
    assert "takes no order (0.11 does)" in shown
    assert "90.0% of starts and kernels run in the order asked for" in shown


def test_nothing_better():
    found = made_up_scheduling()
    shown = render_schedule(replace(found, ours=found.pgle, moved=()), 80).plain
    assert "XLA's order stays: none was found that is faster" in shown


def test_what_json_promises():
    said = schedule_json(made_up_scheduling(), "order.json")
    for name in ("xla", "pgle", "ours"):
        assert said[name].keys() == {
            "step_us",
            "exposed_communication_us",
            "exposed_copy_us",
            "memory_bytes",
        }
    assert said["bound_us"] == 1200.0 and said["seconds"] == 3.5 and said["is_obeyed"] is True
    assert said["moved"][0]["instruction"] == "all-gather-start.3"
    assert said["order"] == "order.json"
