"""Keyword arguments arrive as the types that a signature states."""

from __future__ import annotations

import enum
import functools
import json
from typing import TYPE_CHECKING, Annotated, Literal

from slipstream.compiler.targets import identify
from slipstream.compiler.worker.keywords import as_json, parameter_types, typed_keywords

if TYPE_CHECKING:
    from elsewhere import Model


class Remat(enum.Enum):
    NONE = 0
    FULL = "everything"


class Size(enum.IntEnum):
    SMALL = 1


def build(
    devices,
    *,
    model: Model | None = None,
    remat: Remat | None = Remat.FULL,
    size: Annotated[Size, "in layers"] = Size.SMALL,
    kept: Literal[Remat.FULL, "all"] = "all",
    scan: bool = True,
    batch: int = 8,
    name: str = "FULL",
    bare=Remat.NONE,
): ...


GIVEN = {
    "remat": Remat.FULL,
    "size": Size.SMALL,
    "kept": Remat.FULL,
    "scan": False,
    "batch": 1,
    "name": "FULL",
    "bare": Remat.FULL,
}


def test_values_survive_the_way_to_another_process():
    sent = json.loads(json.dumps({name: as_json(value) for name, value in GIVEN.items()}))
    found = typed_keywords(build, sent)
    assert found == GIVEN
    assert {name: type(value) for name, value in found.items()} == {
        name: type(value) for name, value in GIVEN.items()
    }


def test_a_target_takes_members_of_enums():
    found = identify("train:build", GIVEN)
    assert found.keywords == {
        **GIVEN,
        "remat": "FULL",
        "size": "SMALL",
        "kept": "FULL",
        "bare": "FULL",
    }


def test_what_the_signature_does_not_know_stays_as_it_is():
    sent = {"remat": None, "kept": "all", "size": "LARGE", "more": [1]}
    assert typed_keywords(build, sent) == sent


def test_a_type_for_type_checkers_only_hides_no_other():
    found = parameter_types(build)
    assert found["remat"] == Remat | None and "model" not in found and "devices" not in found


def test_wrapped_and_partial_functions():
    @functools.wraps(build)
    def wrapper(*args, **keywords): ...

    for one in (wrapper, functools.partial(build, batch=2)):
        assert typed_keywords(one, {"remat": "NONE"}) == {"remat": Remat.NONE}
