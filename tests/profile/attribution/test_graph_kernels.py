"""Instructions of kernels inside CUDA graphs that ran in another order than the schedule's."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from graph_orders import captured, mixture_of_experts
from slipstream.profile.attribution import graph_kernels
from slipstream.profile.attribution.attribution import attribute
from slipstream.profile.events import EVENT_COLUMNS, Table, Texts
from slipstream.profile.profile import Profile
from slipstream.sources.hlo.reader import program_from_text
from slipstream.sources.load import load

DATA = Path(__file__).resolve().parents[2] / "data"
PLAIN = ["attention_plain", "convolution_plain", "off_lhs_nocb"]
PLAIN += [f"accuracy/{model}.no_graphs" for model in ("gpt_cudnn", "gpt_scan", "mixer")]
EXPERTS = "a mixture of experts"
FSDP = "accuracy/gpt_fsdp.no_graphs"
LITTLE_US = 2.0
"""memsets, which are alike"""
GRAPHS = ["single", "off_default", "attention_graphs", "convolution_graphs"]
GRAPHS += ["accuracy/mixer.cublas", "accuracy/gpt_cudnn.cublas", "accuracy/gpt_fsdp.default"]

# Examples take long to shrink; the seed of the order names one well enough.
QUICK = settings(
    max_examples=20, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate]
)


@cache
def recording(name: str) -> Profile:
    return mixture_of_experts() if name == EXPERTS else load(DATA / f"{name}.xplane.pb.gz")


def instructions(profile: Profile) -> list[str]:
    events = profile.events
    return [events.text("instruction", row) for row in range(len(events))]


@QUICK
@given(st.sampled_from([*PLAIN, EXPERTS]), st.integers(0, 2**32), st.integers(1, 4))
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


@QUICK
@given(st.sampled_from([*PLAIN, FSDP]), st.integers(0, 2**32), st.integers(1, 4), st.booleans())
def test_without_numbers_dependencies_and_durations_tell(
    name: str, seed: int, streams: int, numbered: bool
) -> None:
    """All device time is attributed. An instruction has its own time, or is named as doubtful.

    Also if there are numbers, but not in schedule order: dependencies contradict them.
    """
    hidden = captured(recording(name), seed, streams, numbered=numbered, scrambled=True)
    events = hidden.profile.events
    texts = Texts(events.texts)
    (program,) = {events.text("program", row) for row in range(len(events))}

    labels, doubts = graph_kernels.instructions_in_graphs(
        hidden.profile.programs[program], events, np.zeros(len(events), np.int32), texts
    )

    assert labels.all()
    doubtful = frozenset[str]().union(*doubts.undecided, *doubts.interchangeable)
    truth, ours, right = Counter[str](), Counter[str](), 0.0
    for label, found, us in zip(
        hidden.truth, labels.tolist(), (events["duration_ps"] / 1e6).tolist(), strict=True
    ):
        truth[label] += us
        ours[texts.values[found]] += us
        right += us * (texts.values[found] == label)
    off = {i for i in truth if abs(truth[i] - ours[i]) > 0.035 * truth[i] + LITTLE_US}
    assert off <= doubtful
    assert right >= 0.5 * sum(truth.values())


@QUICK
@given(st.integers(0, 2**32), st.integers(1, 4))
def test_experts_of_one_size_may_be_exchanged_and_no_others(seed: int, streams: int) -> None:
    """Their products have equal kernels and grids: only the sum of each size is certain.

    Side by side, kernels slow each other down, so that durations don't tell sizes for certain.
    """
    found = attribute(captured(mixture_of_experts(), seed, streams, numbered=False).profile)
    plain = recording(EXPERTS)
    ours, truth = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
    for profile, totals in ((found, ours), (plain, truth)):
        for instruction, ps in zip(
            instructions(profile), profile.events["duration_ps"].tolist(), strict=True
        ):
            name, _, expert = instruction.partition(".")
            totals[name, int(expert or 0) % 3] += ps
    assert ours == {key: pytest.approx(ps, rel=0.035) for key, ps in truth.items()}
    warning = found.warnings[-1]
    assert len(found.warnings) == 1 or streams > 1
    assert warning.code == "graph-order"
    assert "they compute the same, so only their sum is certain" in warning.message


def test_instructions_that_nothing_tells_apart_are_named() -> None:
    hidden = captured(recording("attention_plain"), seed=1, numbered=False)
    found = attribute(hidden.profile)
    (warning,) = found.warnings
    assert warning.code == "graph-order"
    assert "each may have been given another's time" in warning.message
    assert not attribute(captured(recording("attention_plain"), seed=1).profile).warnings


def test_what_ran_in_schedule_order_is_certain_without_numbers() -> None:
    known = recording("attention_graphs")
    events = known.events
    nothing = np.zeros(len(events), np.int32)
    blank = events.replace(
        instruction=nothing, execution=nothing, graph_node=nothing.astype(np.int64)
    )
    found = attribute(known.with_events(blank))
    assert instructions(found) == instructions(known)
    assert not found.warnings


REDUCED_PRODUCT = """HloModule reduced, is_scheduled=true

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}

ENTRY %main {
  %x = f32[64,64] parameter(0)
  %first = f32[64,64] custom-call(%x, %x), custom_call_target="__cublas$gemm"
  %all-reduce = f32[64,64] all-reduce(%first), replica_groups={{0,1}}, to_apply=%sum
  ROOT %second = f32[64,64] custom-call(%all-reduce, %x), custom_call_target="__cublas$gemm"
}
"""


@pytest.mark.parametrize(
    "kernel",
    [
        "void stream_executor::gpu::AllReduceKernelImpl<float, (xla::ReductionKind)0>(…)",
        "_ZN15stream_executor3gpu19AllReduceKernelImplIfLN3xla13ReductionKindE0EEEvT_",
    ],
)
def test_collective_kernels_of_xla_are_no_part_of_a_product(kernel: str) -> None:
    """Since jaxlib 0.12, they run inside graphs by default."""
    texts = Texts()
    columns = {column.name: np.zeros(3, column.dtype) for column in EVENT_COLUMNS}
    columns |= {
        "start_ps": np.arange(3) * 10**7,
        "duration_ps": np.full(3, 10**6),
        "name": texts.map(["nvjet", kernel, "nvjet"]),
        "correlation": np.ones(3, np.int64),
        "graph": np.ones(3, np.int64),
    }
    events = Table(EVENT_COLUMNS, columns, texts.values)
    labels, _ = graph_kernels.instructions_in_graphs(
        program_from_text(REDUCED_PRODUCT), events, np.zeros(3, np.int32), texts
    )
    assert [texts.values[label] for label in labels] == ["first", "all-reduce", "second"]


TWO_PRODUCTS = """HloModule two, is_scheduled=true

%once (a: f32[64,64]) -> f32[64,64] {
  %a = f32[64,64] parameter(0)
  ROOT %t = f32[64,64] tanh(%a)
}

%twice (b: f32[64,64]) -> f32[64,64] {
  %b = f32[64,64] parameter(0)
  ROOT %n = f32[64,64] negate(%b)
}

ENTRY %main {
  %x = f32[64,64] parameter(0)
  %first = f32[64,64] custom-call(%x, %x), custom_call_target="__cublas$gemm"
  %second = f32[64,64] custom-call(%x, %x), custom_call_target="__cublas$gemm"
  %tanh = f32[64,64] fusion(%first), kind=kLoop, calls=%once
  %negate = f32[64,64] fusion(%second), kind=kLoop, calls=%twice
  ROOT %sum = (f32[64,64], f32[64,64]) tuple(%tanh, %negate)
}
"""


def test_kernels_in_the_same_order_may_be_of_other_instructions_the_next_time() -> None:
    """Both products begin at once, on two streams; the one that ends first is tanh's."""
    program = program_from_text(TWO_PRODUCTS)
    texts = Texts()
    names = texts.map(["nvjet", "nvjet", "tanh", "negate"] * 2)
    us = np.array([(0, 10, 0), (1, 90, 1), (11, 2, 0), (92, 2, 1)])
    us = np.concatenate((us, us + [200, 0, 0]))
    us[[4, 5], 1] = [91, 9]
    columns = {column.name: np.zeros(8, column.dtype) for column in EVENT_COLUMNS}
    columns |= {
        "start_ps": us[:, 0] * 10**6,
        "duration_ps": us[:, 1] * 10**6,
        "lane": us[:, 2].astype(np.int32),
        "name": names,
        "correlation": np.repeat([1, 2], 4),
        "graph": np.ones(8, np.int64),
    }
    events = Table(EVENT_COLUMNS, columns, texts.values)
    labels, _ = graph_kernels.instructions_in_graphs(
        program, events, np.repeat([0, 1], 4).astype(np.int32), texts
    )
    assert [texts.values[label] for label in labels] == [
        *("first", "second", "tanh", "negate"),
        *("second", "first", "tanh", "negate"),
    ]
