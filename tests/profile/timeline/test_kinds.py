"""Compute, communication or copy: by instruction if possible, else by name."""

from __future__ import annotations

import pytest

from builders import hlo, profile
from slipstream.profile.timeline.kinds import COMMUNICATION, COMPUTE, COPY, kinds
from slipstream.sources.hlo.reader import program_from_proto
from slipstream.sources.proto_schema import message


@pytest.mark.parametrize(
    "name, kind",
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", COMMUNICATION),
        ("rcclGenericKernel", COMMUNICATION),
        ("nvshmemi_transfer", COMMUNICATION),
        ("MemcpyD2H", COPY),
        ("MemcpyP2P", COPY),
        ("__amd_rocclr_copyBuffer", COPY),
        ("Memset", COMPUTE),
        ("loop_add_fusion", COMPUTE),
        ("nvjet_hsh_256x128", COMPUTE),
        ("my_memcpy_like_fusion", COMPUTE),
    ],
)
def test_by_the_name_of_the_kernel(name, kind):
    found = profile().kernel("fusion.1", 10, name, instruction="").build()
    assert kinds(found).tolist() == [kind]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(
    "instruction, name, kind",
    [
        # XLA's own one-shot collectives are kernels like any other.
        ("all-reduce.3", "one_shot_kernel", COMMUNICATION),
        ("all-gather-start.1", "one_shot_kernel", COMMUNICATION),
        ("collective-permute.2", "MemcpyP2P", COMMUNICATION),
        ("ragged-all-to-all.1", "kernel", COMMUNICATION),
        ("copy-start.1", "copy_kernel", COPY),
        ("dynamic-slice-start.4", "slice_kernel", COPY),
        ("copy.1", "copy_kernel", COMPUTE),
        ("reduce.1", "input_reduce_fusion", COMPUTE),
        ("dot.7", "MemcpyD2D", COPY),
    ],
)
def test_by_the_instruction(known, instruction, name, kind):
    found = profile(known).kernel(instruction, 10, name).build()
    assert kinds(found).tolist() == [kind]


@pytest.mark.parametrize("known", [True, False])
def test_waiting_for_communication_is_communication(known):
    """TPUs record the wait for an asynchronous collective as the time of its done."""
    names = ["all-gather-start.1", "copy-start.2", "dot.3", "all-gather-done.1", "copy-done.2"]
    built = profile(known)
    for name in names:
        built.kernel(name, 10)
    expected = [COMMUNICATION, COPY, COMPUTE, COMMUNICATION, COPY]
    assert kinds(built.build()).tolist() == expected


def test_a_user_may_call_an_instruction_what_they_like():
    """Where the program is known, its opcodes count, not its names."""
    proto = message("HloProto").FromString(hlo("jit_step", ["dot.1"]))
    proto.hlo_module.computations[0].instructions[-1].name = "all-reduce.1"
    program = program_from_proto(proto.SerializeToString())
    assert program.instruction("all-reduce.1").opcode == "dot"
    found = profile().kernel("all-reduce.1", 10, "gemm").with_program("jit_step(1)", program)
    assert kinds(found.build()).tolist() == [COMPUTE]


def test_of_no_events():
    assert kinds(profile().build()).tolist() == []
