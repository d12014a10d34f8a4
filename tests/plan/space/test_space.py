"""Combinations: generated meshes, conditions, numbers and samples."""

from itertools import product
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.errors import BadInput
from slipstream.machines.topology import machine
from slipstream.plan.space.choices import Choice
from slipstream.plan.space.space import Combination, space_of

FSDP, TENSOR = Choice("fsdp", (), True, 8, True), Choice("tensor", (), True, 1, True)
REMAT = Choice("remat", ("none", "full"), False, "full", True)
BATCH = Choice("batch", (1, 2, 4), False, 2, True)
H8 = machine("8xH100")


def texts(found):
    return [str(one) for one in found]


def test_meshes_are_generated():
    space = space_of((FSDP, REMAT, TENSOR), H8, "remat == 'full'")
    assert texts(space) == [
        "fsdp=1 remat=full tensor=8",
        "fsdp=2 remat=full tensor=4",
        "fsdp=4 remat=full tensor=2",
        "fsdp=8 remat=full tensor=1",
    ]
    assert texts(space.skipped) == ["remat=none: --where: remat == 'full' is not true"]
    assert str(space.default) == "fsdp=8 remat=full tensor=1"
    assert len({*space}) == space.count == 4


def test_a_single_divisor_takes_all_of_them():
    assert texts(space_of((FSDP,), machine("6xH100"))) == ["fsdp=1", "fsdp=2", "fsdp=3", "fsdp=6"]


def test_values_that_make_no_mesh_are_skipped_with_the_reason():
    tensor = Choice("tensor", (1, 3, 2), True, 1, True)
    space = space_of((FSDP, tensor), H8)
    assert texts(space) == ["fsdp=4 tensor=2", "fsdp=8 tensor=1"]
    assert texts(space.skipped) == [
        "tensor=3: 3 does not divide 8 devices",
        "fsdp=1: no sizes of tensor make it a mesh of 8 devices",
        "fsdp=2: no sizes of tensor make it a mesh of 8 devices",
    ]


def test_an_axis_whose_default_is_none_takes_what_the_others_leave():
    fsdp = Choice("fsdp", (), True, None, True)
    tensor = Choice("tensor", (1, 2), True, 2, True)
    assert str(space_of((fsdp, tensor, BATCH), H8).default) == "fsdp=4 tensor=2 batch=2"
    assert space_of((fsdp, Choice("tensor", (1, 2), True, None, True)), H8).default is None
    assert space_of((fsdp, tensor), machine("3xH100")).default is None


def test_conditions_join_only_the_choices_that_they_name():
    layers = Choice("layers", tuple(range(1000)))
    others = [Choice(f"x{n}", tuple(range(1000))) for n in range(30)]
    space = space_of((FSDP, TENSOR, layers, BATCH, *others), H8, "tensor <= 2 and layers < batch")
    assert [len(group) for group in space.groups[:2]] == [2, 0 + 1 + 2 + 4]
    assert space.count == 2 * 7 * 1000**30
    assert space.sample(5) == space.sample(5) != space.sample(5, seed=1)
    assert len({*space.sample(50)}) == 50
    last = space.at(space.count - 1)
    assert str(last).startswith("fsdp=8 tensor=1 layers=3 batch=4 x0=999 x1=999")
    with pytest.raises(BadInput, match="joins layers, x0, which have 1,000,000 combinations; exp"):
        space_of((layers, others[0]), H8, "layers == x0")


def test_the_sizes_of_the_machine():
    many = machine("2x4x8xH100")
    where = "tensor <= gpus_per_host and fsdp >= hosts and devices == 64 and hosts == 8"
    found = texts(space_of((FSDP, TENSOR), many, where))
    assert found == ["fsdp=8 tensor=8", "fsdp=16 tensor=4", "fsdp=32 tensor=2", "fsdp=64 tensor=1"]


def test_a_condition_on_the_machine_alone():
    space = space_of((BATCH,), H8, "devices > 8")
    assert (space.count, list(space), space.default) == (0, [], None)
    assert texts(space.skipped) == ["--where: devices > 8 is not true"]


def test_a_choice_may_have_the_name_of_a_size():
    assert texts(space_of((Choice("hosts", (1, 2)),), H8, "hosts > 1")) == ["hosts=2"]


def test_a_division_by_zero_skips_that_combination():
    space = space_of((BATCH,), H8, "4 // (batch - 1) > 1")
    assert texts(space) == ["batch=2"]
    assert "batch=1: --where: 4 // (batch - 1) > 1 can't be computed" in str(space.skipped[0])


@pytest.mark.parametrize(
    ("choices", "where"),
    [
        ((FSDP, Choice("tensor", (), True)), ""),  # one has no default
        ((FSDP, Choice("tensor", (), True, 2, True)), ""),  # 8 × 2 devices
        ((FSDP, TENSOR), "tensor > 1"),
    ],
)
def test_defaults_need_not_be_possible(choices, where):
    assert space_of(choices, H8, where).default is None


def test_a_combination_is_a_key_and_arguments():
    one = Combination((("scan", True), ("chunk", None)))
    assert {one: 1}[Combination((("scan", True), ("chunk", None)))] == 1
    assert (str(one), one.keywords) == ("scan=True chunk=None", {"scan": True, "chunk": None})


WHERE = ("", "a <= 2", "a * b == c", "m == 1 or a > 1", "m < n and b != 2", "m * n * k == devices")
FEW = st.lists(st.integers(1, 4), min_size=1, max_size=3, unique=True).map(tuple)


@given(
    st.sampled_from([1, 2, 6, 8]),
    st.lists(st.sampled_from(WHERE), max_size=2),
    st.sets(st.sampled_from("mnk")),
    st.fixed_dictionaries(dict.fromkeys("manbkc", FEW)),
)
def test_it_is_the_full_product_filtered(devices, where, axes, values):
    """Groups, generated meshes and numbers give what trying everything does."""
    choices = [Choice(name, () if name in axes else values[name], name in axes) for name in values]
    condition = " and ".join(f"({one})" for one in where if one)
    space = space_of(choices, machine(f"{devices}xH100"), condition)

    plainly = []
    for chosen in product(*(one.values_on(devices) for one in choices)):
        named = dict(zip(values, chosen, strict=True))
        is_mesh = len(axes) < 2 or prod(named[name] for name in axes) == devices
        if is_mesh and eval(condition or "True", {}, {**named, "devices": devices}):
            plainly.append(Combination(tuple(named.items())))
    assert {*space} == {*plainly} and space.count == len(plainly)
