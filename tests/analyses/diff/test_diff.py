"""Diffs: matches of programs that were renamed and recut, costs, schedules, verdicts."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import profile as build
from schedules import MACHINE, NOTHING, copied, costs, gather, gathered, kernel, program, to_host
from slipstream.analyses.diff.diff import diff, is_slower_than, verdict
from slipstream.analyses.diff.step_samples import step_samples
from slipstream.analyses.ops import ops
from slipstream.outputs.terminal.diff import render_diff
from slipstream.profile.profile import Profile
from slipstream.profile.program import Program
from slipstream.profile.timeline.intervals import IntervalUnion
from slipstream.profile.timeline.kinds import kinds
from slipstream.simulate.engine import simulation
from slipstream.sources.hlo.reader import program_from_text
from slipstream.sources.load import load

DATA = Path(__file__).parents[2] / "data"
EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "gpt.py"


def recording(name: str) -> Profile:
    return load(DATA / f"{name}.xplane.pb.gz")


def simulated(found: Program, **us: float) -> Profile:
    return simulation(found, MACHINE, estimates=costs(**us), overheads=NOTHING).profile


def rows(found):
    return {(c.kind, c.before, c.after): c.change_us for c in found.changes}


# Matching.


def test_a_recompiled_program_is_recognised_whole():
    found = diff(recording("off_lhs_nocb"), recording("off_pgle_nocb"))
    assert (found.before.matched_share, found.after.matched_share) == (1, 1)
    assert {change.kind for change in found.changes} == {"same"}
    # Two slices of the same shape from the same line may be taken for each other.
    names = [c.before == c.after for c in found.changes]
    assert names.count(False) <= 2
    assert found.reordered == 17
    # Three steps from 438 to 461 ms and from 441 to 457 ms: that is noise.
    assert found.verdict.verdict == "can't tell"
    assert found.verdict.confidence == pytest.approx(0.9)
    assert abs(found.verdict.change) < 0.01
    walls = next(part for part in found.parts if part.name == "wall")
    assert walls.before_us == pytest.approx(438_312.765)


def test_what_command_buffers_serialised_comes_first():
    """`default` ran its copies on the compute stream, the other beside it."""
    found = diff(recording("off_default"), recording("off_lhs_nocb"))
    first, move = found.changes[0], found.moves[0]
    assert first.description == move.description == "copy to host 134 MB"
    assert first.change_us == pytest.approx(-19_306, rel=0.01)
    assert first.device_after_us > first.device_before_us, "the copy itself got slower"
    assert move.before.is_inline and not move.after.is_inline
    assert move.change_us == pytest.approx(first.change_us)


@pytest.mark.parametrize("model", ["gpt_scan", "gpt_cudnn", "mixer", "resnet"])
def test_other_kernels_for_the_same_model(model):
    """Triton's products against cuBLAS's: other names, other fusions, other layouts."""
    before = recording(f"accuracy/{model}.default")
    found = diff(before, recording(f"accuracy/{model}.cublas"))
    assert found.before.matched_share > 0.95 and found.after.matched_share > 0.95
    counted = [name for c in found.changes for name in c.before]
    assert sorted(counted) == sorted({s.op.instruction for s in step_samples(before)})


def test_two_models_are_not_the_same():
    before, after = (recording(f"accuracy/{m}.default") for m in ("gpt_scan", "gpt_cudnn"))
    found = diff(before, after)
    assert found.before.matched_share < 0.1 and found.after.matched_share < 0.1
    assert found.verdict.verdict == "different programs"
    assert np.isnan(found.verdict.change) and found.verdict.low is None
    shown = render_diff(found).plain
    assert "can't be compared" in " ".join(shown.split())
    assert not re.search(r"[+−]\d", shown) and "nan" not in shown
    assert "change" not in shown.splitlines()[-1]


def test_split_merged_new_and_gone():
    fusions = """%both (x: f32[8]) -> f32[8] {
  %x = f32[8] parameter(0)
  %n = f32[8] negate(%x), metadata={op_name="jit(f)/neg" source_file="m.py" source_line=3}
  ROOT %e = f32[8] exponential(%n), metadata={op_name="jit(f)/exp" source_file="m.py" source_line=4}
}

%one (y: f32[8]) -> f32[8] {
  %y = f32[8] parameter(0)
  ROOT %m = f32[8] negate(%y), metadata={op_name="jit(f)/neg" source_file="m.py" source_line=3}
}

%two (z: f32[8]) -> f32[8] {
  %z = f32[8] parameter(0)
  ROOT %d = f32[8] exponential(%z), metadata={op_name="jit(f)/exp" source_file="m.py" source_line=4}
}
"""
    whole = program(
        "%f.1 = f32[8] fusion(%a), kind=kLoop, calls=%both",
        "ROOT %s = f32[8] sine(%f.1)",
        others=fusions,
    )
    cut = program(
        "%f.7 = f32[8] fusion(%a), kind=kLoop, calls=%one",
        "%f.8 = f32[8] fusion(%f.7), kind=kLoop, calls=%two",
        "ROOT %c = f32[8] cosine(%f.8)",
        others=fusions,
    )
    one, two = (
        simulated(whole, **{"f.1": 10, "s": 3}),
        simulated(cut, **{"f.7": 6, "f.8": 7, "c": 1}),
    )
    assert rows(diff(one, two)) == {
        ("split", ("f.1",), ("f.7", "f.8")): pytest.approx(3),
        ("gone", ("s",), ()): pytest.approx(-3),
        ("new", (), ("c",)): pytest.approx(1),
    }
    back = diff(two, one)
    assert ("merged", ("f.7", "f.8"), ("f.1",)) in rows(back)
    assert back.after.matched_share == pytest.approx(10 / 13)


def test_an_unrolled_loop_is_one_match():
    body = """%body (p: (s32[], f32[8])) -> (s32[], f32[8]) {
  %p = (s32[], f32[8]) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %x = f32[8] get-tuple-element(%p), index=1
LINES  ROOT %t = (s32[], f32[8]) tuple(%i, %LAST)
}

%condition (q: (s32[], f32[8])) -> pred[] {
  %q = (s32[], f32[8]) parameter(0)
  ROOT %k = pred[] constant(true)
}
"""

    def loop(trips: int, *names: str) -> Program:
        lines = "".join(
            f"  %{name} = f32[8] negate(%{before})\n"
            for before, name in zip(("x", *names), names, strict=False)
        )
        return program(
            "%zero = s32[] constant(0)",
            "%z = (s32[], f32[8]) tuple(%zero, %a)",
            "%w = (s32[], f32[8]) while(%z), condition=%condition, body=%body, "
            f'backend_config={{"known_trip_count":{{"n":"{trips}"}}}}',
            "ROOT %r = f32[8] get-tuple-element(%w), index=1",
            others=body.replace("LINES", lines).replace("LAST", names[-1]),
        )

    one, two = (
        simulated(loop(4, "n"), n=5),
        simulated(loop(2, "n.1", "n.2"), **{"n.1": 5, "n.2": 6}),
    )
    assert rows(diff(one, two)) == {("unrolled", ("n",), ("n.1", "n.2")): pytest.approx(2)}


@settings(max_examples=20)
@given(st.randoms(use_true_random=False))
def test_names_say_nothing(random):
    """Every instruction and computation renamed at random: the same program still."""
    text = (DATA / "nccl2_lhs_r0.hlo.gz").read_bytes()
    import gzip

    lines = _entry_of(gzip.decompress(text).decode())
    names = sorted(set(re.findall(r"%([\w.\-]+)", lines)))
    shuffled = [f"x.{number}" for number in random.sample(range(10**6), len(names))]
    table = dict(zip(names, shuffled, strict=True))
    renamed = re.sub(r"%([\w.\-]+)", lambda m: f"%{table[m[1]]}", lines)
    one, two = (program_from_text(found) for found in (lines, renamed))
    us = {i.name: 1.0 + n for n, i in enumerate(one.scheduled)}
    before = simulated(one, **{name.replace("-", "_"): t for name, t in us.items()})
    after = simulated(two, **{table[name]: t for name, t in us.items()})
    found = diff(before, after)
    assert {change.kind for change in found.changes} == {"same"}
    assert found.reordered == 0


def _entry_of(text: str) -> str:
    """A program of a hundred different instructions, cut from a real one's entry."""
    head = "HloModule toy, is_scheduled=true\n\n"
    lines = ["  %a = f32[64,32] parameter(0)"]
    before = "a"
    for number, opcode in enumerate(re.findall(r"= f32\[[\d,]*\]\S* (\w+)\(", text)[:30]):
        if opcode in ("negate", "exponential", "copy", "multiply", "add", "divide", "tanh"):
            twice = opcode in ("multiply", "add", "divide")
            operands = f"%{before}, %a" if twice else f"%{before}"
            lines.append(f"  %v.{number} = f32[64,32] {opcode}({operands})")
            before = f"v.{number}"
    for number, opcode in enumerate(("tanh", "negate", "sine", "negate", "cosine", "negate")):
        lines.append(f"  %u.{number} = f32[64,32] {opcode}(%{before})")
        before = f"u.{number}"
    lines.append(f"  ROOT %root = f32[64,32] abs(%{before})")
    return head + "ENTRY %main (a: f32[64,32]) -> f32[64,32] {\n" + "\n".join(lines) + "\n}\n"


# Costs.


def test_a_collective_costs_what_is_exposed():
    def steps(hidden: float) -> Profile:
        made = build()
        for number in range(3):
            made = made.annotation(number, 1000 * number, 400).at(1000 * number)
            made = made.kernel("dot.1", 50).all_reduce(80, hidden=hidden).kernel("dot.2", 20)
            made = made.execution_of()
        return made.build()

    found = diff(steps(30), steps(10))
    change = found.changes[0]
    assert (change.before, change.category) == (("all-reduce.1",), "all-reduce")
    assert (change.before_us, change.after_us, change.change_us) == (50, 70, 20)
    assert (change.device_before_us, change.device_after_us) == (80, 80)
    assert change.is_beyond_noise and not any(c.change_us for c in found.changes[1:])
    (move,) = found.moves
    assert (move.before.exposed_us, move.after.exposed_us) == (50, 70)


def test_equal_collectives_are_one_as_in_ops():
    before = recording("nccl2_lhs_r0")
    found = diff(before, recording("nccl2_nolhs_r0"))
    matched = [g for g in found.groups if g.category == "all-to-all"]
    groups = [g for g in ops(before).groups if g.category == "all-to-all"]
    assert max(len(g.before) for g in matched) > 1
    assert {frozenset(g.before) for g in matched} == {frozenset(g.instructions) for g in groups}


def test_equal_collectives_move_as_one():
    found = diff(recording("nccl2_nolhs_r0"), recording("nccl2_lhs_r0"))
    moved = {move.before.instructions: move for move in found.move_groups if move.before}
    merged = [group for group in found.groups if group.before in moved and len(group.before) > 1]
    assert merged
    for group in merged:
        move = moved[group.before]
        assert move.per_step_count == group.per_step_count
        assert move.before.exposed_us == pytest.approx(group.before_us)
        assert move.after.exposed_us == pytest.approx(group.after_us)
    names = [name for move in found.moves if move.before for name in move.before.instructions]
    assert sorted(names) == sorted(name for one in moved for name in one)


def plain_costs(profile: Profile) -> dict[str, float]:
    """What the steps pay for each op, on average, counted event by event."""
    kind, events = kinds(profile), profile.events
    spans = list(zip(events["start_ps"].tolist(), events["duration_ps"].tolist(), strict=True))
    found: dict[str, float] = {}
    inside = profile.steps.of_events(profile)
    hiding = {1: kind == 0, 2: kind != 2}
    unions = {
        k: IntervalUnion.of(*(events[c][m] for c in ("start_ps", "duration_ps")))
        for k, m in hiding.items()
    }
    for row, (start, length) in enumerate(spans):
        if inside[row] == len(profile.steps):
            continue
        paid = float(length)
        if kind[row]:
            union = unions[int(kind[row])]
            for a, b in zip(union.starts.tolist(), union.ends.tolist(), strict=True):
                paid -= max(0, min(b, start + length) - max(a, start))
        name = events.text("instruction", row)
        found[name] = found.get(name, 0.0) + paid / 1e6 / len(profile.steps)
    return found


def test_costs_of_a_recording_counted_one_by_one():
    profile = recording("off_lhs_nocb")
    seen = {s.op.instruction: float(np.mean(s.cost_us)) for s in step_samples(profile)}
    assert seen == pytest.approx(plain_costs(profile), abs=1e-6)


# The schedule.


def test_what_a_collective_runs_beside():
    lines = {
        "g": gather("g", "a"),
        "b": kernel("b", "a"),
        "c": kernel("c", "b"),
        "gd": gathered("gd", "g"),
        "s": to_host("s", "c"),
        "sd": copied("sd", "s", True),
    }
    end = "ROOT %e = f32[8] add(%c, %b)"

    def ordered(*names: str) -> Profile:
        found = program(*(lines[name] for name in names), end)
        return simulated(found, g=15, b=10, c=10, s=4, e=1)

    before = ordered("g", "b", "gd", "c", "s", "sd")
    after = ordered("g", "b", "c", "gd", "s", "sd")
    found = diff(before, after)
    move = found.moves[0]
    assert (move.kind, move.gained, move.lost) == ("all-gather", ("c",), ())
    assert (move.before.exposed_us, move.after.exposed_us) == (5, 0)
    assert (move.before.covers, move.after.covers) == (1, 2)
    assert (found.verdict.verdict, found.verdict.confidence) == ("faster", 1.0)
    assert found.drift is None


# Verdicts.


@pytest.mark.parametrize(
    ("before", "after", "expected", "low_at_2"),
    [
        ([100, 101, 102], [110, 111, 112], "slower", True),
        ([110, 111, 112], [100, 101, 102], "faster", False),
        ([100, 100, 100], [100.2, 100.3, 100.2], "no different", False),
        ([100, 120, 90], [101, 95, 125], "can't tell", False),
        ([100, 101], [150, 151], "can't tell", None),
        ([], [1], "can't tell", None),
    ],
)
def test_verdicts(before, after, expected, low_at_2):
    found = verdict(before, after)
    assert found.verdict == expected
    assert is_slower_than(found, 0.02) is low_at_2


def test_a_prediction_and_a_recording_are_not_compared():
    assert verdict([100.0], [90.0], (True, False)).verdict == "can't tell"
    both = verdict([100.0], [103.0], (True, True))
    assert (both.verdict, both.low) == ("slower", pytest.approx(0.03))


def test_profiles_without_programs_are_matched_by_name():
    one = build(known=False).kernel("fusion.12", 10).kernel("fusion.3", 5).build()
    two = build(known=False).kernel("fusion.7", 12).kernel("fusion.3", 5).build()
    assert rows(diff(one, two)) == {
        ("same", ("fusion.12",), ("fusion.7",)): 2,
        ("same", ("fusion.3",), ("fusion.3",)): 0,
    }


def test_nothing_at_all():
    found = diff(build().build(), build().build())
    assert (found.verdict.verdict, found.changes, found.moves) == ("can't tell", (), ())
    assert "nan" not in render_diff(found).plain
