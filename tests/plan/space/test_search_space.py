"""Combinations as a study's settings, and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.machines.topology import machine
from slipstream.plan.space.choices import Choice
from slipstream.plan.space.search_space import SearchSpace, combination_of, settings_of
from slipstream.plan.space.space import space_of

CHOICES = (
    Choice("fsdp", (), is_divisor=True),
    Choice("tensor", (1, 2, 4, 8), is_divisor=True, default=1, has_default=True),
    Choice("remat", ("none", "full"), default="full", has_default=True),
    Choice("offload", (False, True, None), default=None, has_default=True),
)


@pytest.fixture(scope="module")
def space():
    found = space_of(CHOICES, machine("2x8xH100"), "remat == 'full' or tensor < 8")
    return SearchSpace(CHOICES, found)


def test_settings_keep_a_combination_with_its_types(space):
    for one in space.space:
        assert combination_of(settings_of(one)) == one
        assert [type(v) for v in combination_of(settings_of(one)).keywords.values()] == [
            type(v) for v in one.keywords.values()
        ]


def test_each_choice_is_a_knob_whose_default_comes_first(space):
    knobs = {one.name: one for one in space.knobs}
    assert list(knobs) == ["fsdp", "tensor", "remat", "offload"]
    assert knobs["tensor"].default == "1" and knobs["tensor"].is_ordered
    assert knobs["remat"].default == '"full"' and not knobs["remat"].is_ordered
    assert knobs["offload"].default == "null"
    assert space.size == space.space.count == 3 * 2 * 3 + 1 * 1 * 3


@given(st.data())
def test_any_values_stand_for_a_combination_that_is_possible(space, data):
    chosen = {one.name: data.draw(st.sampled_from(one.values)) for one in space.knobs}
    found = space.without_defaults(chosen)
    assert combination_of(found) in set(space.space)
    if combination_of(chosen) in set(space.space):
        assert found == chosen


def test_a_mesh_that_does_not_fit_becomes_one_of_similar_sizes(space):
    found = space.without_defaults(
        {"fsdp": "8", "tensor": "4", "remat": '"full"', "offload": "true"}
    )
    assert (found["fsdp"], found["tensor"]) in {("4", "4"), ("8", "2")}
    assert (found["remat"], found["offload"]) == ('"full"', "true")
