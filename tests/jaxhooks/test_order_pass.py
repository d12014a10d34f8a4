"""The pass behind XLA's scheduler, on modules as XLA hands them over."""

import jax
import pytest

from slipstream.errors import Missing
from slipstream.jaxhooks import order_pass
from slipstream.jaxhooks.order_pass import FINGERPRINT, OrderPass, is_supported, registered
from slipstream.sources.proto_schema import message

IDS = {"a": 7, "k1": 8, "g": 9, "d": 10, "k2": 11}
EARLIER = ("a", "g", "k1", "d", "k2")


def module(fingerprint: str = "f00d", name: str = "toy") -> bytes:
    """One computation of five instructions, scheduled by XLA as they are listed."""
    found = message("HloModuleProto")(name=name)
    computation = found.computations.add(name="main", id=3)
    for name, number in IDS.items():
        computation.instructions.add(name=name, id=number)
    found.schedule.sequences[3].instruction_ids.extend(IDS.values())
    if fingerprint:
        found.frontend_attributes.map[FINGERPRINT] = fingerprint
    return found.SerializeToString()


def sequence(data: bytes) -> list[int]:
    return list(message("HloModuleProto").FromString(data).schedule.sequences[3].instruction_ids)


def test_the_sequence_is_changed_and_nothing_else():
    ours = OrderPass({"main": EARLIER}, "f00d")
    changed = ours(module())
    assert changed is not None and ours.is_set and not ours.problem
    assert sequence(changed) == [IDS[name] for name in EARLIER]
    assert len(changed) == len(module())


def test_without_an_order_it_only_looks():
    seen = OrderPass()
    assert seen(module()) is None
    assert seen.scheduled == module() and not seen.is_set


def test_modules_of_single_fusions_are_left_alone():
    ours = OrderPass({"main": EARLIER})
    assert ours(module(fingerprint="")) is None
    assert ours.scheduled is None and not ours.problem


@pytest.mark.parametrize(
    ("ours", "problem"),
    [
        (OrderPass({"main": EARLIER}, "beef"), "for a program with fingerprint beef, not f00d"),
        (OrderPass({"body": EARLIER}), "the program has no computation body"),
        (OrderPass({"main": EARLIER[1:]}), "main has other instructions than the order"),
        (OrderPass({"main": (*EARLIER, "a")}), "main has other instructions than the order"),
    ],
)
def test_an_order_of_another_program_leaves_xlas(ours, problem):
    assert ours(module()) is None
    assert problem in ours.problem and not ours.is_set


def test_another_program_that_is_compiled_at_the_same_time_is_left_alone():
    ours = OrderPass({"main": EARLIER}, "f00d", program="toy")
    assert ours(module()) is not None
    assert ours(module("beef", name="jit_eval")) is None
    assert ours.is_set and not ours.problem and ours.scheduled == module()
    later = OrderPass({"main": EARLIER}, "f00d")
    assert later(module("beef")) is None and later(module()) is not None
    assert later.is_set


def test_which_versions_of_jax_call_it():
    newer = tuple(map(int, jax.__version__.split(".")[:2])) >= (0, 11)
    assert is_supported() is newer


def test_an_older_jax_says_so(monkeypatch):
    monkeypatch.setattr(order_pass, "_functions", lambda: None)
    with (
        pytest.raises(Missing, match=r"XLA takes an order from JAX 0\.11 on, and this is "),
        registered(OrderPass()),
    ):
        pass
