"""Collectives of XLA:TPU: real programs (tests/record/tpu_programs.py), and small ones in text."""

from collections import Counter
from functools import cache

import pytest

from recorded import DATA
from slipstream.profile.program import Instruction, Program
from slipstream.profile.semantics.descriptions import describe, moved_names
from slipstream.profile.semantics.names import phase_of, source
from slipstream.sources.hlo.reader import program_from_text, read_program

CHAIN = """
HloModule step, is_scheduled=true, num_partitions=4

started (x: bf16[2,8]) -> (bf16[2,8], bf16[8,8], u32[]) {
  x = bf16[2,8]{1,0:T(8,128)(2,1)} parameter(0)
  gather = bf16[8,8]{1,0} all-gather(x), channel_id=3, replica_groups=[1,4]<=[4], \
dimensions={0}, frontend_attributes={chain_id="7"}, \
backend_config={"async_collective_fusion_config":{}}
  ROOT call = (bf16[2,8]{1,0}, bf16[8,8]{1,0:S(1)}, u32[]{:S(2)}) custom-call(gather), \
custom_call_target="AsyncCollectiveStart"
}

between (x: bf16[2,8], y: bf16[8,8], s: u32[]) -> (bf16[8,8], bf16[8,8], u32[]) {
  x = bf16[2,8]{1,0} parameter(0)
  y = bf16[8,8]{1,0} parameter(1)
  s = u32[]{:S(2)} parameter(2)
  dot = bf16[8,8]{1,0} convolution(y, y), dim_labels=bf_io->bf
  gather.2 = bf16[8,8]{1,0} all-gather(x), channel_id=3, replica_groups=[1,4]<=[4], \
dimensions={0}, frontend_attributes={chain_id="7"}, \
backend_config={"async_collective_fusion_config":{}}
  ROOT all = (bf16[8,8]{1,0}, bf16[8,8]{1,0}, u32[]{:S(2)}) tuple(dot, y, s)
}

ended (x: bf16[8,8], s: u32[]) -> bf16[8,8] {
  x = bf16[8,8]{1,0} parameter(0)
  s = u32[]{:S(2)} parameter(1)
  gather.3 = bf16[8,8]{1,0} all-gather(x), channel_id=3, replica_groups=[1,4]<=[4], \
dimensions={0}, frontend_attributes={chain_id="7"}, \
backend_config={"async_collective_fusion_config":{}}
  ROOT call.3 = bf16[8,8]{1,0:S(1)} custom-call(x, gather.3, s), \
custom_call_target="AsyncCollectiveDone"
}

add (a: bf16[], b: bf16[]) -> bf16[] {
  a = bf16[] parameter(0)
  b = bf16[] parameter(1)
  ROOT sum = bf16[] add(a, b)
}

scattered (x: bf16[8,8], i: s32[]) -> bf16[2,8] {
  x = bf16[8,8]{1,0} parameter(0)
  i = s32[] parameter(1)
  zero = s32[] constant(0)
  reduced = bf16[8,8]{1,0} all-reduce(x), channel_id=5, replica_groups=[1,4]<=[4], to_apply=add
  ROOT mine = bf16[2,8]{1,0} dynamic-slice(reduced, i, zero), dynamic_slice_sizes={2,8}
}

ENTRY main (w: bf16[2,8], i: s32[]) -> bf16[2,8] {
  w = bf16[2,8]{1,0} parameter(0), metadata={op_name="params['wide']"}
  i = s32[] parameter(1)
  start = (bf16[2,8]{1,0}, bf16[8,8]{1,0:S(1)}, u32[]{:S(2)}) fusion(w), kind=kCustom, calls=started
  x = bf16[2,8]{1,0} get-tuple-element(start), index=0
  y = bf16[8,8]{1,0} get-tuple-element(start), index=1
  s = u32[]{:S(2)} get-tuple-element(start), index=2
  product = (bf16[8,8]{1,0}, bf16[8,8]{1,0}, u32[]{:S(2)}) fusion(x, y, s), kind=kOutput, \
calls=between
  y.2 = bf16[8,8]{1,0} get-tuple-element(product), index=1
  s.2 = u32[]{:S(2)} get-tuple-element(product), index=2
  done = bf16[8,8]{1,0:S(1)} fusion(y.2, s.2), kind=kCustom, calls=ended
  ROOT scatter = bf16[2,8]{1,0} fusion(done, i), kind=kCustom, calls=scattered
}
"""


@cache
def compiled(name: str) -> Program:
    return read_program(DATA / "tpu" / name)


def test_a_chain_of_fusions_is_one_asynchronous_collective() -> None:
    program = program_from_text(CHAIN)
    start, done = program.instruction("start"), program.instruction("done")
    assert (start.opcode, done.opcode) == ("all-gather-start", "all-gather-done")
    assert program.partner("start") is done
    assert program.partner("done") is start
    assert start.collective is not None
    assert (start.collective.bytes, start.collective.group_size) == (128, 4)
    between = program.instruction("product")
    assert (between.opcode, program.collective_of(between)) == ("fusion", None)
    assert describe(program, start) == "all-gather wide 128 B"


def test_an_all_reduce_of_which_a_slice_is_kept_is_a_reduce_scatter() -> None:
    scatter = program_from_text(CHAIN).instruction("scatter")
    assert scatter.opcode == "fusion"
    assert scatter.collective is not None
    assert (scatter.collective.kind, scatter.collective.bytes) == ("reduce-scatter", 128)


def test_every_start_of_real_programs_has_its_done() -> None:
    counted = {
        "v5e_2slices.hlo.gz": {"all-gather-start": 9, "send": 13, "recv": 13},
        "v5p_fsdp.hlo.gz": {"collective-permute-start": 50},
        "v5p_tensor.hlo.pb.gz": {"collective-permute-start": 14},
    }
    for name, expected in counted.items():
        program = compiled(name)
        starts = [i for i in program.scheduled if i.is_start]
        assert all(program.partner(start.name) is not None for start in starts)
        talking = Counter(i.opcode for i in starts if program.collective_of(i) is not None)
        assert talking == expected


def test_transfers_between_slices_have_their_collective() -> None:
    program = compiled("v5e_2slices.hlo.gz")
    send = program.instruction("send.6")
    assert send.collective is not None
    assert (send.collective.kind, send.collective.bytes) == ("send", 4000 * 8 * 128 * 2)
    assert send.attributes == {
        "_xla_host_transfer_rendezvous": "all-reduce.11_0",
        "_xla_megascale_transfer_type": "ALL_REDUCE",
        "_xla_megascale_reduce_operation": "SUM",
        "_xla_megascale_target": "{1,2}x{0:15}",
    }
    assert describe(program, send) == "send ∂head 8.19 MB, all-reduce of slices"
    assert describe(program, program.instruction("recv.6")) == (
        "receive ∂head 8.19 MB, all-reduce of slices"
    )


def test_transfers_between_slices_say_whose_gradient_they_move_and_where_it_is_computed() -> None:
    # Its step adds gradients to momenta, and updates the weights with the momenta. The layers are
    # a loop whose last iteration is peeled off: its transfers come after the loop.
    program = compiled("v5e_2slices.hlo.gz")
    sends = [i for i in program.scheduled if i.opcode == "send"]
    inside = [i for i in sends if i.computation != program.entry.name]
    after = [i for i in sends if i not in inside]

    def named(found: list[Instruction]) -> set[tuple[str, str]]:
        return {(moved_names(program, one), source(program, one)) for one in found}

    layer = {("∂down", "train.py:28"), ("∂up", "train.py:28"), ("∂out", "train.py:27")}
    layer |= {("∂qkv", "train.py:24")}
    assert {phase_of(program, one) for one in inside} == {"backward"}
    assert named(inside) == layer | {("∂norm", "train.py:22")}
    assert named(after) == {
        *layer,
        ("∂norm", "train.py:24"),
        ("∂head", "train.py:35"),
        ("∂p.embedding", "train.py:31"),
        ("", "train.py:37"),  # the loss
    }


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("copy-start.36", "copy p.embedding 16.4 MB to VMEM"),
        ("slice-start.43", "slice up 4.19 MB to VMEM"),
        ("copy-start.48", "copy 16.8 MB from VMEM"),
        ("async-collective-start.8", "all-gather down 33.6 MB"),
        ("async-collective-done.8", "wait for all-gather down 33.6 MB"),
        ("fusion.177", "x @ head"),
        ("fusion.219", "x @ qkv"),
        ("fusion.184", "gelu(dy @ downᵀ)"),
        ("fusion.265", "softmax"),
        ("multiply_subtract_fusion.5", "update out"),
    ],
)
def test_descriptions_name_weights_and_memories(name: str, said: str) -> None:
    program = compiled("v5e_2slices.hlo.gz")
    assert describe(program, program.instruction(name)) == said


def test_a_proto_says_which_device_runs_each_partition() -> None:
    assert compiled("v5p_tensor.hlo.pb.gz").device_ids == (0, 1, 2, 3)
    assert compiled("v5p_fsdp.hlo.gz").device_ids == ()
