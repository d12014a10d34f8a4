"""Asynchronous operations of a TPU, recorded from their start to the end of their done."""

from pathlib import Path

from builders import Unsigned, hlo, space
from slipstream.analyses.ops import ops
from slipstream.costs.measure import measure
from slipstream.profile.profile import Profile
from slipstream.profile.timeline.windows import attending, hidden_windows
from slipstream.sources.load import load

STEP = "jit_step(7)"
NAMES = ("copy-start.1", "copy-start.2", "negate.1", "copy-done.1", "copy-done.2", "negate.2")


def profile(folder: Path) -> Profile:
    """The first copy had ended when it was awaited; the core waits for the second.

    XLA Ops         start.1 start.2 ██ negate.1 ██ done.1 ███ done.2 ███ ██ negate.2 ██
    Async XLA Ops   ├────────────────────────────┤
                            ├──────────────────────────────────────────┤
    """
    made = space()
    made.program(STEP, hlo("jit_step", NAMES, program_id=7))
    tpu = made.tpu()
    modules, cores, beside = (
        tpu.line(name) for name in ("XLA Modules", "XLA Ops", "Async XLA Ops")
    )
    for run in range(2):
        at = 1_000.0 * run
        modules.event(STEP, at, 500, run_id=Unsigned(run + 1))
        for name, start, us in (
            ("copy-start.1", 0, 0.01), ("copy-start.2", 1, 0.01), ("negate.1", 2, 98),
            ("copy-done.1", 100, 0.01), ("copy-done.2", 101, 49), ("negate.2", 150, 30),
        ):  # fmt: skip
            text = f"%{name} = f32[8]{{0}} {name.rpartition('.')[0]}(f32[8]{{0}} %x)"
            tpu.metadata(text, name, program_id=Unsigned(7))
            cores.event(text, at + start, us, display=name)
        for number, start, end in ((1, 0, 100.01), (2, 1, 150)):
            text = f"%copy-start.{number} = f32[8]{{0}} copy-start(f32[8]{{0}} %x)"
            tpu.metadata(text, "async-copy", program_id=Unsigned(7))
            done = f"copy-done.{number}"
            beside.event(text, at + start, end - start, display="async-copy", hlo_op=done)
    return load(made.write(folder / "host.xplane.pb"))


def test_a_window_is_its_start_and_hidden_if_its_done_did_not_wait(tmp_path):
    found = profile(tmp_path)
    events = found.events
    windows = [row for row, one in enumerate(events["lane"]) if found.lanes[one].is_beside]
    hidden = hidden_windows(found)
    assert [(events.text("instruction", row), bool(hidden[row])) for row in windows] == [
        ("copy-start.1", True), ("copy-start.2", False),
    ] * 2  # fmt: skip
    assert not hidden[[row for row in range(len(events)) if row not in windows]].any()


def test_starts_and_dones_attend_to_what_has_its_own_event(tmp_path):
    found = profile(tmp_path)
    names = {found.events.text("instruction", row) for row in attending(found).nonzero()[0]}
    assert names == {name for name in NAMES if name.startswith("copy")}
    assert attending(found).sum() == 8


def test_a_core_spends_no_time_in_a_window(tmp_path):
    times = {op.instruction: op.total_us / op.count for op in ops(profile(tmp_path)).ops}
    assert times == {
        "copy-start.1": 0.01, "copy-start.2": 0.01, "negate.1": 98, "copy-done.1": 0.01,
        "copy-done.2": 49, "negate.2": 30,
    }  # fmt: skip


def test_costs_are_those_of_what_ends_in_sight(tmp_path):
    costs = {one.instruction: one.us.mean() for one in measure(profile(tmp_path))}
    assert costs == {"copy-start.2": 149, "negate.1": 98, "negate.2": 30}
