"""Streams that operations are dealt to, against those they ran on."""

from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

from recorded import protos
from slipstream.profile.profile import Profile
from slipstream.simulate.recorded import hottest_program
from slipstream.simulate.streams import Streams, post_order
from slipstream.sources.hlo.reader import program_from_text
from slipstream.sources.load import load
from slipstream.sources.proto_schema import message

RECORDINGS = ("off_lhs_nocb", "off_pgle_nocb")


@cache
def recording(data: Path, name: str) -> Profile:
    return load(data / f"{name}.xplane.pb.gz")


@pytest.mark.parametrize("name", RECORDINGS)
def test_copies_share_the_streams_they_shared_on_the_device(data: Path, name: str) -> None:
    """In every run a stream of ours is one stream of the device, and no two of ours are one."""
    profile = recording(data, name)
    program = hottest_program(profile)
    assert program is not None
    events, dealt = profile.events, Streams(program).of
    lanes = events["lane"].tolist()
    runs = events["execution"].tolist()
    seen: dict[tuple[int, int], set[int]] = defaultdict(set)
    for row in range(len(events)):
        start = program.starter(events.text("instruction", row))
        if start is not None:
            seen[runs[row], dealt[start.name]].add(lanes[row])
    assert len(seen) == 12  # three runs, four streams
    for run in range(3):
        used = [lane for (number, _), found in seen.items() if number == run for lane in found]
        assert len(used) == len(set(used)) == 4


def test_post_order_is_the_order_in_which_xla_lists_instructions(data: Path) -> None:
    profile = recording(data, RECORDINGS[0])
    program = hottest_program(profile)
    assert program is not None
    proto = protos(RECORDINGS[0])[f"{program.name}({program.program_id})"]
    module = message("HloProto").FromString(proto).hlo_module
    compared = 0
    for computation in module.computations:
        if computation.name in {i.computation for i in program.scheduled}:
            listed = [instruction.name for instruction in computation.instructions]
            ours = [i.name for i in post_order(program.computations[computation.name])]
            assert ours == listed
            compared += 1
    assert compared >= 3


def test_loops_that_the_root_does_not_depend_on_have_streams_too() -> None:
    """As on TPUs of several slices: what a loop computes is only sent."""
    program = program_from_text(
        """HloModule jit_step, is_scheduled=true
%body (s: f32[8]) -> f32[8] {
  %s = f32[8] parameter(0)
  %token = token[] after-all()
  %send.1 = (f32[8], u32[], token[]) send(%s, %token), channel_id=1, is_host_transfer=true
  %sent = token[] send-done(%send.1), channel_id=1, is_host_transfer=true
  ROOT %same = f32[8] negate(%s)
}
%condition (s: f32[8]) -> pred[] {
  %s = f32[8] parameter(0)
  ROOT %less = pred[] constant(true)
}
ENTRY main {
  %x = f32[8] parameter(0)
  %loop = f32[8] while(%x), condition=%condition, body=%body
  ROOT %y = f32[8] negate(%x)
}
"""
    )
    assert set(Streams(program).of) == {"send.1"}
