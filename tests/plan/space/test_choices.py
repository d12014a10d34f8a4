"""Choices of a signature, narrowed and added to by `--vary`."""

import enum
from typing import Literal

import pytest

from slipstream import Divisor, Range
from slipstream.errors import BadInput
from slipstream.plan.space.choices import Choice, choices_of
from slipstream.plan.space.parameters import parameters_of


class Remat(enum.Enum):
    NONE = 0
    FULL = 1


def build(
    devices,
    *,
    fsdp: Divisor = 8,
    attention: Literal["xla", "cudnn"] = "xla",
    remat: Remat | None = None,
    scan: bool = True,
    batch: Range[1, 64] = 8,
    layers=4,
    rate: float = 0.1,
    name: str = "gpt",
    chunk=None,
    bare=Remat.FULL,
    model: object = None,
): ...


def varied(*vary):
    return {one.name: one.values for one in choices_of("t.py:build", parameters_of(build), vary)}


def test_the_choices_of_a_signature():
    assert choices_of("t.py:build", parameters_of(build)) == (
        Choice("fsdp", (), True, 8, True),
        Choice("attention", ("xla", "cudnn"), False, "xla", True),
        Choice("remat", ("NONE", "FULL", None), False, None, True, "Remat"),
        Choice("scan", (False, True), False, True, True),
        Choice("batch", (1, 2, 4, 8, 16, 32, 64), False, 8, True),
    )


def test_a_divisor_depends_on_the_machine():
    assert Choice("fsdp", (), True).values_on(12) == (1, 2, 3, 4, 6, 12)
    assert Choice("fsdp", (2, 8), True).values_on(12) == (2, 8)


@pytest.mark.parametrize(
    ("vary", "values"),
    [
        ("fsdp=16, 2", (16, 2)),
        ("attention=CUDNN", ("cudnn",)),
        ("remat=full,None,FULL", ("FULL", None)),
        ("scan=yes", (True,)),
        ("scan=false,True", (False, True)),
        ("batch=12,64", (12, 64)),
        ("layers=2,4", (2, 4)),
        ("rate=1e-3,1", (0.001, 1.0)),
        ("name=7", ("7",)),
        ("bare=none", ("NONE",)),
        ("chunk=1,2.5,true,False,all,nan,None", (1, 2.5, True, False, "all", "nan", None)),
    ],
)
def test_vary_narrows_and_adds(vary, values):
    name = vary.partition("=")[0]
    found = varied(vary)[name]
    assert found == values and [*map(type, found)] == [*map(type, values)]


def test_added_choices_keep_the_order_of_the_signature():
    assert list(varied("layers=2", "fsdp=1"))[-1] == "layers"


@pytest.mark.parametrize(
    ("vary", "message"),
    [
        (
            "fdsp=2",
            "there is no argument 'fdsp'; did you mean fsdp\\? choose from: fsdp, attention",
        ),
        ("devices=2", "there is no argument 'devices'"),
        ("fsdp", "is incomplete; expected NAME=VALUE,VALUE"),
        ("fsdp=", "is incomplete"),
        ("fsdp=1,,2", "is incomplete"),
        ("=1", "is incomplete"),
        ("fsdp=0", "'0' is not a value of Divisor; expected a divisor of the number of devices"),
        ("attention=flash", "'flash' is not a value of .*; expected one of xla, cudnn"),
        ("scan=2", "expected one of False, True"),
        (
            "batch=128",
            r"'128' is not a value of Range\[1, 64\]; expected a whole number from 1 to 64",
        ),
        ("batch=two", "expected a whole number from 1 to 64"),
        ("layers=2.5", "expected a whole number"),
        ("rate=inf", "expected a number"),
        ("model=gpt", "'gpt' is not a value of object; expected a type that can be written here"),
    ],
)
def test_vary_that_cannot_be_used(vary, message):
    with pytest.raises(BadInput, match=message):
        varied(vary)


def test_vary_names_a_choice_once():
    with pytest.raises(BadInput, match="--vary names batch twice; give it once"):
        varied("batch=1", "batch=2")


def test_an_argument_that_nothing_gives_a_value():
    def needs(devices, layers: int, scan: bool): ...

    parameters = parameters_of(needs)
    message = r"t.py:needs needs a value for layers \(int\).*--vary layers=VALUE,VALUE"
    with pytest.raises(BadInput, match=message):
        choices_of("t.py:needs", parameters)
    assert choices_of("t.py:needs", parameters, ["layers=2"])[0] == Choice("layers", (2,))


@pytest.mark.parametrize("takes", ["layers", "nothing but devices"])
def test_nothing_may_vary(takes):
    def with_layers(devices, layers=4): ...
    def without(devices): ...

    parameters = parameters_of(with_layers if takes == "layers" else without)
    message = rf"t.py:build has nothing that may vary \(it takes {takes}\); annotate .*--vary NAME"
    with pytest.raises(BadInput, match=message):
        choices_of("t.py:build", parameters)
    with pytest.raises(BadInput, match="no argument"):
        choices_of("t.py:build", parameters, ["width=1"])
