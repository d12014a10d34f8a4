"""Orders: files, what they are refused for, and whether they are obeyed."""

import json
from dataclasses import replace

import pytest

from schedules import gather, gathered, kernel, program
from slipstream.compiler.order import Order, read_order
from slipstream.errors import BadInput


@pytest.fixture
def own():
    found = program(
        kernel("k1", "a"), gather("g", "a"), gathered("d", "g"),
        'ROOT %k2 = f32[8] custom-call(%k1, %d), custom_call_target="f"',
    )  # fmt: skip
    return replace(found, fingerprint="f00d")


EARLIER = ("a", "g", "k1", "d", "k2")


def order(*names: str, fingerprint: str | None = "f00d") -> Order:
    return Order({"main": names or EARLIER}, fingerprint, "toy", {"xla_flag": "1"})


def test_an_order_is_read_as_it_was_written(tmp_path):
    written = order()
    assert read_order(written.write(tmp_path / "order.json")) == written
    shaped = Order({}, "f00d", "toy", {"xla_flag": "1"}, {"g": 2.5})
    assert read_order(shaped.write(tmp_path / "costs.json")) == shaped
    assert shaped.cost_table.of("f00d")["g"].us == 2.5


def test_applied(own):
    found = order().applied(own)
    assert [one.name for one in found.entry.instructions] == list(EARLIER)
    assert [one.position for one in found.entry.instructions] == [0, 1, 2, 3, 4]
    assert found.entry.root.name == "k2"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            order(fingerprint="beef"),
            "fingerprint beef, and this one has f00d: .*slipstream schedule",
        ),
        (order("a", "g", "d", "k2", "k1"), "has k2 before k1, which it needs"),
        (order("a", "g", "k1", "d"), "has 4 instructions, and the program 5, each once; .*: k2"),
        (order("a", "g", "k1", "d", "d"), "has 5 instructions, and the program 5, each once"),
        (Order({"body": ()}, "f00d"), "the order is of body, which .* doesn't have"),
    ],
)
def test_orders_of_other_programs_and_impossible_ones(own, wrong, said):
    with pytest.raises(BadInput, match=said):
        wrong.applied(own)


def test_an_order_without_a_fingerprint_needs_the_same_instructions(own):
    order(fingerprint=None).check(own)
    order().check(replace(own, fingerprint=None))


def test_obeyed_is_read_from_what_was_compiled(own):
    assert order().is_obeyed(order().applied(own), own)
    assert not order().is_obeyed(own, own)
    assert not Order({"body": ("x",)}, None).is_obeyed(own, own)


def test_a_collective_that_nothing_overlaps_may_become_one_instruction(own):
    one = program(
        kernel("k1", "a"),
        "%g = f32[16] all-gather(%a), replica_groups={{0,1}}, dimensions={0}, channel_id=1",
        'ROOT %k2 = f32[8] custom-call(%k1, %g), custom_call_target="f"',
    )
    assert order("a", "k1", "g", "d", "k2").is_obeyed(one, own)
    assert not order().is_obeyed(one, own)  # k1 was to run beside it


WHOLE = (
    '{"format": "slipstream-order", "version": 1, "program": "toy", "fingerprint": "f00d", '
    '"flags": {}, "costs": {}, "sequences": {}}'
)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"format": "other", "version": 1}',
        '{"format": "slipstream-order"}',
        WHOLE.replace('"costs": {}', '"costs": {"g": "soon"}'),
        WHOLE.replace('"costs": {}', '"costs": {"g": -1}'),
        WHOLE.replace('"costs": {}', '"costs": [1]'),
        WHOLE.replace('"sequences": {}', '"sequences": {"main": 3}'),
        WHOLE.replace('"sequences": {}', '"sequences": ["main"]'),
        WHOLE.replace('"fingerprint": "f00d"', '"fingerprint": 12'),
        WHOLE.replace('"sequences": {}', '"sequences": {"main": "abc"}'),
    ],
)
def test_files_that_are_no_orders(tmp_path, content):
    (tmp_path / "order.json").write_text(content)
    with pytest.raises(
        BadInput, match=r"order\.json.*expected an order that `slipstream schedule -o`"
    ):
        read_order(tmp_path / "order.json")


def test_a_whole_file(tmp_path):
    (tmp_path / "order.json").write_text(WHOLE)
    assert read_order(tmp_path / "order.json") == Order({}, "f00d", "toy")


def test_a_newer_version(tmp_path):
    path = order().write(tmp_path / "order.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": 2}))
    with pytest.raises(BadInput, match="version"):
        read_order(path)
