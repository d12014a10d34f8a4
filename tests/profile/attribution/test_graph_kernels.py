"""Instructions of kernels inside CUDA graphs that ran in another order than the schedule's."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_orders import captured
from slipstream.profile.attribution import graph_kernels
from slipstream.profile.attribution.attribution import attribute
from slipstream.profile.profile import Profile
from slipstream.sources.load import load

DATA = Path(__file__).resolve().parents[2] / "data"
PLAIN = ["attention_plain", "convolution_plain", "off_lhs_nocb"]
PLAIN += [f"accuracy/{model}.no_graphs" for model in ("gpt_cudnn", "gpt_scan", "mixer")]
GRAPHS = ["single", "off_default", "attention_graphs", "convolution_graphs"]
GRAPHS += ["accuracy/mixer.cublas", "accuracy/gpt_cudnn.cublas", "accuracy/gpt_fsdp.default"]


@cache
def recording(name: str) -> Profile:
    return load(DATA / f"{name}.xplane.pb.gz")


def instructions(profile: Profile) -> list[str]:
    events = profile.events
    return [events.text("instruction", row) for row in range(len(events))]


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(PLAIN), st.integers(0, 2**32), st.integers(1, 4))
def test_numbered_nodes_may_run_in_any_order(name: str, seed: int, streams: int) -> None:
    """The instruction of every kernel is found, so counts and costs are exact as well."""
    hidden = captured(recording(name), seed, streams, executions=2)
    assert instructions(attribute(hidden.profile)) == hidden.truth


@pytest.mark.parametrize("name", GRAPHS)
def test_node_numbers_and_times_of_real_graphs_tell_the_same(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """XLA's graphs ran in schedule order here, so their nodes can be checked against that."""
    known = recording(name)
    events = known.events
    nothing = np.zeros(len(events), np.int32)
    monkeypatch.setattr(
        graph_kernels._Finder, "_as_it_ran", lambda _, e: np.zeros(len(e.sequence), np.int32)
    )
    blank = known.with_events(events.replace(instruction=nothing, execution=nothing))
    assert instructions(attribute(blank)) == instructions(known)
