"""Slack: known answers, and a plain simulation that delays each op by it and by more."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import STEP, profile
from slipstream.analyses.def_use import DefUse
from slipstream.analyses.slack import slack
from slipstream.errors import BadInput
from slipstream.sources.hlo.reader import program_from_text
from slipstream.sources.load import load

TWO = program_from_text("""\
HloModule jit_step, is_scheduled=true

ENTRY main {
  p = f32[8]{0} parameter(0)
  all-gather-start.1 = (f32[8]{0}, f32[16]{0}) all-gather-start(p), dimensions={0}
  exp.1 = f32[8]{0} exponential(p)
  all-gather-done.1 = f32[16]{0} all-gather-done(all-gather-start.1)
  all-gather-start.2 = (f32[8]{0}, f32[16]{0}) all-gather-start(exp.1), dimensions={0}
  exp.2 = f32[16]{0} exponential(all-gather-done.1)
  all-gather-done.2 = f32[16]{0} all-gather-done(all-gather-start.2)
  ROOT add.1 = f32[16]{0} add(exp.2, all-gather-done.2)
}
""")
NCCL = "ncclDevKernel_AllGather_RING_LL"
COMM = "Stream #20(Communication)"


def two() -> object:
    """The first ends long before its user begins; the second is waited for."""
    built = profile().with_program(STEP, TWO)
    for at in (0, 200):
        built.at(at).kernel("all-gather-start.1", 20, NCCL, COMM)
        built.at(at).kernel("exp.1", 50).at(at + 50)
        built.kernel("all-gather-start.2", 60, NCCL, COMM).at(at + 50)
        built.kernel("exp.2", 30).at(at + 112).kernel("add.1", 10).execution_of()
    return built.build()


@pytest.mark.parametrize("device", [5, -1])
def test_a_device_that_was_not_recorded_is_an_error(device):
    said = rf"device {device} is not in this profile; its devices are: 0 \(GPU:0\)$"
    with pytest.raises(BadInput, match=said):
        slack(two(), device=device)


def test_one_has_slack_and_one_has_none():
    found = slack(two())
    assert (found.device, found.step, found.program, found.notes) == ("GPU:0", 1, STEP, ())
    second, first = found.rows
    assert (first.instruction, second.instruction) == ("all-gather-start.1", "all-gather-start.2")
    # Its user begins at 50, and so does the next on its stream.
    assert (first.slack_us, first.latest_end_us, first.is_zero) == (30.0, 50.0, False)
    assert first.limit in ("exp.2", "all-gather-start.2")
    assert (first.earlier_us, first.after) == (0.0, "the start of the step")
    # The two µs before its user begins are the wait's own latency.
    assert (second.slack_us, second.latest_end_us, second.is_zero) == (0.0, 112.0, True)
    assert (second.limit, second.limit_description) == ("add.1", "add")
    assert (second.after, second.earlier_us) == ("exp.1", 0.0)
    assert second.exposed_us == 30.0
    assert (second.kind, second.count, second.bytes) == ("communication", 1, 64)


def test_a_step_may_be_chosen():
    assert slack(two(), step=0).step == 0
    with pytest.raises(BadInput, match=r"step 7 is not in this profile \(it has steps 0 to 1\)"):
        slack(two(), step=7)
    assert slack(profile().build()).notes == ("the recording has no steps",)


def test_without_a_program_only_streams_and_the_end_limit():
    built = profile(known=False).kernel("dot.1", 10).all_reduce(5).kernel("dot.2", 20)
    found = slack(built.build())
    assert "does not contain the program" in found.notes[0]
    assert [(row.slack_us, row.limit) for row in found.rows] == [(20.0, "the end of the step")]


LOOP = program_from_text("""\
HloModule jit_loop, is_scheduled=true

body {
  b = (s32[], f32[8]{0}, f32[16]{0}) parameter(0)
  i = s32[] get-tuple-element(b), index=0
  x = f32[8]{0} get-tuple-element(b), index=1
  w = f32[16]{0} get-tuple-element(b), index=2
  all-gather-start.1 = (f32[8]{0}, f32[16]{0}) all-gather-start(x), dimensions={0}
  exp.1 = f32[8]{0} exponential(x)
  neg.1 = f32[16]{0} negate(w)
  all-gather-done.1 = f32[16]{0} all-gather-done(all-gather-start.1)
  add.1 = f32[16]{0} add(neg.1, neg.1)
  ROOT t = (s32[], f32[8]{0}, f32[16]{0}) tuple(i, exp.1, all-gather-done.1)
}

condition {
  c = (s32[], f32[8]{0}, f32[16]{0}) parameter(0)
  j = s32[] get-tuple-element(c), index=0
  ROOT less = pred[] compare(j, j), direction=LT
}

ENTRY main {
  p = f32[8]{0} parameter(0)
  z = s32[] constant(0)
  q = f32[16]{0} parameter(1)
  t0 = (s32[], f32[8]{0}, f32[16]{0}) tuple(z, p, q)
  while.1 = (s32[], f32[8]{0}, f32[16]{0}) while(t0), condition=condition, body=body
  last = f32[16]{0} get-tuple-element(while.1), index=2
  ROOT sin.1 = f32[16]{0} sine(last)
}
""")


def test_values_are_followed_through_loops():
    names = {"all-gather-start.1", "exp.1", "neg.1", "add.1", "sin.1"}
    values = DefUse(LOOP, names)
    # To the next turn, and out of the loop; not to other elements of the tuple.
    assert values.users("all-gather-start.1").instructions == {"neg.1", "sin.1"}
    assert values.users("exp.1").instructions == {"all-gather-start.1"}
    assert values.users("sin.1").is_result
    # What leaves no trace passes values on.
    assert DefUse(LOOP, names - {"neg.1"}).users("all-gather-start.1").instructions == {
        "add.1",
        "sin.1",
    }


@st.composite
def schedules(draw: st.DrawFn) -> list[tuple[str, list[int], int, int]]:
    """(kind, earlier ops it takes, duration, idle before it) in schedule order."""
    found = []
    for place in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(("compute", "gather")))
        earlier = st.lists(st.integers(0, place - 1), max_size=2, unique=True)
        takes = draw(earlier) if place else []
        found.append((kind, takes, draw(st.integers(1, 30)), draw(st.integers(0, 8))))
    return found


def run(made, delay: dict[int, int], recorded: list[int] | None = None) -> list[int]:
    """Starts of a plain simulation: each after what it takes and after its stream's last.

    With recorded starts nothing begins earlier than it did then.
    """
    free = {"compute": 0, "gather": 0}
    starts: list[int] = []
    for place, (kind, takes, _, gap) in enumerate(made):
        ready = max((starts[t] + made[t][2] for t in takes), default=0)
        begin = max(ready, free[kind]) + (gap if recorded is None else 0)
        if recorded is not None:
            begin = max(begin, recorded[place] + delay.get(place, 0))
        starts.append(begin)
        free[kind] = begin + made[place][2]
    return starts


def text_of(made) -> str:
    lines = ["p = f32[8]{0} parameter(0)"]
    for place, (kind, takes, _, _) in enumerate(made):
        values = [f"gather-done.{t}" if made[t][0] == "gather" else f"op.{t}" for t in takes]
        for t in takes:
            if made[t][0] == "gather" and not any(x.startswith(f"gather-done.{t} ") for x in lines):
                lines.append(f"gather-done.{t} = f32[8]{{0}} copy-done(gather.{t})")
        a, b = (values + ["p", "p"])[:2]
        if kind == "compute":
            lines.append(f"op.{place} = f32[8]{{0}} add({a}, {b})")
            continue
        lines.append(f"both.{place} = f32[8]{{0}} bitcast({a})")
        extra = f", control-predecessors={{{b}}}" if b != "p" else ""
        shape = "(f32[8]{0}, f32[8]{0}, u32[])"
        lines.append(f"gather.{place} = {shape} copy-start(both.{place}){extra}")
    return (
        "HloModule jit_step, is_scheduled=true\n\nENTRY main {\n"
        + "".join(f"  {line}\n" for line in lines)
        + "  ROOT done = f32[8]{0} bitcast(p)\n}\n"
    )


@given(schedules())
def test_no_kernel_moves_before_the_slack_is_used_up(made):
    starts = run(made, {})
    built = profile().with_program(STEP, program_from_text(text_of(made)))
    for place, (kind, _, duration, _) in enumerate(made):
        is_compute = kind == "compute"
        name, lane = (f"op.{place}", "compute") if is_compute else (f"gather.{place}", "copy")
        kernel = "k" if is_compute else "MemcpyD2D"
        built.at(starts[place]).kernel(name, duration, kernel, lane)
    finish = max(start + one[2] for start, one in zip(starts, made, strict=True))
    fixed = [place for place, one in enumerate(made) if one[0] == "compute"]
    zero = min(starts)

    def moves(place: int, delay: int) -> bool:
        later = run(made, {place: delay}, starts)
        end = max(start + one[2] for start, one in zip(later, made, strict=True))
        return end > finish or any(later[p] != starts[p] for p in fixed)

    for row in slack(built.build()).rows:
        place = int(row.instruction.partition(".")[2])
        room = round(row.latest_end_us - row.end_us)
        assert round(row.start_us) == starts[place] - zero
        assert not moves(place, room)
        assert moves(place, room + 1)


def test_a_host_copy_that_is_waited_for(data: Path):
    """The copy back from the host in the offloading step, which the schedule can't hide."""
    found = slack(load(data / "off_lhs_nocb.xplane.pb.gz"))
    first = found.rows[0]
    assert (first.instruction, first.count, first.is_zero) == ("wrapped_dynamic-slice", 8, True)
    assert first.limit == "input_reduce_fusion"
    assert first.exposed_us == pytest.approx(20251, abs=1)
    # The copy to the host is hidden, and could end much later.
    stored = next(r for r in found.rows if r.instruction == "wrapped_dynamic-update-slice")
    assert stored.slack_us > 5000
    # In CUDA graphs both are on the stream of the kernels: neither has any.
    graphs = slack(load(data / "off_default.xplane.pb.gz"))
    assert {"wrapped_dynamic-slice", "wrapped_dynamic-update-slice"} <= {
        row.instruction for row in graphs.rows if row.is_zero
    }
