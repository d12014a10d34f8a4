"""Transfers between slices: what each sends, and what hides it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.machines.topology import machine
from slipstream.machines.tpu.slices import SliceTransfer, slice_transfer, slices_of
from slipstream.sources.hlo.reader import program_from_text

US = st.floats(0.1, 1e5)


@given(host_us=US, latency_us=US, slack_us=US, slower=st.floats(1.0, 1.5))
def test_with_what_it_needs_a_transfer_takes_its_slack_and_no_longer(
    host_us: float, latency_us: float, slack_us: float, slower: float
) -> None:
    sent, devices = 1e6, 4
    transfer = SliceTransfer(sent, host_us, 100.0, latency_us)
    needs = transfer.needs_gbps(slack_us, devices, slower)
    if needs is None:
        unlimited = replace(transfer, network_us=0.0)
        assert slower * unlimited.us >= slack_us * (1 - 1e-9)
    else:
        rate = needs / devices / 8 * 1e9
        enough = replace(transfer, network_us=sent / rate * 1e6)
        assert slower * enough.us == pytest.approx(slack_us)


@given(host_us=US, network_us=US, latency_us=US, slack_us=US)
def test_up_to_its_longest_latency_a_transfer_takes_no_longer_than_its_slack(
    host_us: float, network_us: float, latency_us: float, slack_us: float
) -> None:
    transfer = SliceTransfer(1e6, host_us, network_us, latency_us)
    longest = transfer.longest_latency_us(slack_us)
    if longest is None:
        assert replace(transfer, latency_us=0.0).us >= slack_us * (1 - 1e-9)
    else:
        assert replace(transfer, latency_us=longest).us == pytest.approx(slack_us, abs=1e-6)


STEP = """HloModule step, is_scheduled=true, num_partitions=16

ENTRY main {{
  p = f32[256,1024] parameter(0)
  t = token[] after-all()
  recv = (f32[{received},1024], u32[], token[]) recv(t), is_host_transfer=true, frontend_attributes={{{transfer}}}
  send = (f32[256,1024], u32[], token[]) send(p, t), is_host_transfer=true, frontend_attributes={{{transfer}}}
  send-done = token[] send-done(send), is_host_transfer=true
  recv-done = (f32[{received},1024], token[]) recv-done(recv), is_host_transfer=true
  ROOT value = f32[{received},1024] get-tuple-element(recv-done), index=0
}}
"""  # noqa: E501
PAIRS = "{{100000,200000},{100001,200001},{300000,400000},{300001,400001}}"
ONE_WAY = "{{100000->200000},{100001->200001},{300000->400000},{300001->400001}}"
ALL = '"{1:2,3,4}x{0:3}"'


@pytest.mark.parametrize(
    ("kind", "target", "received", "sent"),
    [
        ("ALL_REDUCE", ALL, 256, 1.5),
        ("ALL_REDUCE", PAIRS, 256, 1.0),
        ("ALL_GATHER", ALL, 1024, 3.0),
        ("ALL_GATHER", PAIRS, 512, 1.0),
        ("REDUCE_SCATTER", ALL, 64, 0.75),
        ("REDUCE_SCATTER", PAIRS, 128, 0.5),
        ("ALL_TO_ALL", PAIRS, 256, 0.5),
        ("ONE_TO_ONE", ONE_WAY, 256, 1.0),
    ],
)
def test_a_device_sends_to_the_slices_of_its_group(
    kind: str, target: str, received: int, sent: float
) -> None:
    """In buffers of 1 MiB. Of four slices, two may exchange values without the others."""
    transfer = (
        '_xla_host_transfer_handler_name="xla_megascale_runtime",'
        f'_xla_host_transfer_rendezvous="r",_xla_megascale_target={target},'
        f'_xla_megascale_transfer_type="{kind}"'
    )
    program = program_from_text(STEP.format(received=received, transfer=transfer))
    send = program.instruction("send")
    assert slices_of(send) == 4
    assert slice_transfer(machine("4xv5e-4"), program, send).bytes == sent * 2**20
