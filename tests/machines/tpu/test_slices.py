"""What hides a transfer between slices: tried on the transfer itself."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.machines.tpu.slices import SliceTransfer

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
