"""Every violated invariant is found and named."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from builders import profile
from slipstream.profile.profile import Lane, Profile, ProfileWarning
from slipstream.profile.validation import validate


def sound() -> Profile:
    return profile().kernel("dot.1", 10).annotation(0, 0, 20).build()


def with_event(column: str, value: object, dtype: object = None) -> Profile:
    found = sound()
    array = np.array([value], dtype or found.events[column].dtype)
    return found.with_events(found.events.replace(**{column: array}))


def with_lane(**changes: object) -> Profile:
    found = sound()
    return replace(found, lanes=(replace(found.lanes[0], **changes), *found.lanes[1:]))


def with_device(**changes: object) -> Profile:
    found = sound()
    return replace(found, devices=(replace(found.devices[0], **changes),))


def with_texts(*texts: str) -> Profile:
    found = sound()
    return found.with_events(found.events.replace([*texts, *found.events.texts[len(texts) :]]))


def without_column() -> Profile:
    found = sound()
    arrays = {k: v for k, v in found.events.arrays.items() if k != "graph"}
    return found.with_events(replace(found.events, arrays=arrays))


def test_a_valid_profile():
    validate(sound())
    validate(Profile((), (), ()))


@pytest.mark.parametrize(
    "broken, sentence",
    [
        (with_device(host=1), "GPU:0 belongs to no host"),
        (with_device(kind="fpga"), "GPU:0 has the unknown kind 'fpga'"),
        (with_lane(host=-1), "lane 'Stream #14(Compute)' belongs to no host"),
        (with_lane(device=3), "lane 'Stream #14(Compute)' belongs to no device"),
        (with_lane(device=None), "lane 'Stream #14(Compute)' has no device but is not a thread"),
        (with_lane(role="string"), "lane 'Stream #14(Compute)' has the unknown role 'string'"),
        (with_lane(role="steps"), "lane 'Stream #14(Compute)' of role steps holds device events"),
        (without_column(), "events does not hold the columns that it declares"),
        (with_event("lane", 9), "events.lane points beyond the lanes"),
        (with_event("name", 99), "events.name points beyond the texts"),
        (with_event("name", -1), "events.name points beyond the texts"),
        (with_event("graph", 0, np.int32), "events.graph has dtype int32"),
        (with_event("op", [0, 0]), "events.op has shape (1, 2)"),
        (with_event("duration_ps", -1), "events.duration_ps has negative values"),
        (with_event("execution", -1), "events.execution has negative values"),
        (with_texts("x"), "the first text of events is not empty"),
        (with_texts("", "same", "same"), "events holds a text twice"),
        (with_event("instruction", 1), "dot_1 is not an instruction of jit_step(1)"),
        (sound().with_warnings(ProfileWarning("code", "")), "a warning is empty"),
    ],
)
def test_a_violated_invariant_is_named(broken: Profile, sentence: str):
    with pytest.raises(AssertionError, match=re.escape(sentence)):
        validate(broken)


def test_a_lane_on_another_host_than_its_device():
    found = profile().kernel("dot.1", 10).host("other").build()
    broken = replace(found, lanes=(Lane("Stream #1", 1, 0),))
    with pytest.raises(AssertionError, match="and its device are on different hosts"):
        validate(broken)


@pytest.mark.parametrize(
    "changes, sentence",
    [
        ({"basis": "guess"}, "unknown basis 'guess'"),
        ({"rule": ""}, "don't name the rule"),
        ({"device": np.array([0, 1])}, "a step belongs to no device"),
        ({"end_ps": np.array([0, -50])}, "a step ends before it starts"),
        ({"number": np.array([4, 4])}, "two steps of GPU:0 share a number"),
        ({"end_ps": np.array([10**9, 10**9])}, "two steps of GPU:0 overlap"),
    ],
)
def test_invalid_steps(changes: dict[str, object], sentence: str):
    found = profile().kernel("dot.1", 10).execution_of().kernel("dot.1", 10).build()
    assert len(found.steps) == 2
    found.__dict__["steps"] = replace(found.steps, **changes)
    with pytest.raises(AssertionError, match=sentence):
        validate(found)
