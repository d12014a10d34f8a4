import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.profile.shapes import BITS, Shape, parse_shape


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("f32[]", 4),
        ("bf16[8,16,1024]{2,1,0:S(5)}", 262144),
        ("pred[3]{0}", 3),
        ("s4[3]{0:E(4)}", 2),
        ("token[]", 0),
        ("(f32[2]{0}, /*index=1*/(s32[], u8[5]{0}))", 17),
        ("f32[<=8,2]{1,0}", 64),
        ("f8e4m3fn[16,16]{1,0:T(8,128)(4,1)}", 256),
        ("()", 0),
    ],
)
def test_bytes(text: str, size: int) -> None:
    assert parse_shape(text).bytes == size


def test_host_memory_and_layout() -> None:
    shape = parse_shape("(bf16[8,16]{0,1:T(8,128)S(5)}, f32[])")
    assert shape.elements[0] == Shape("bf16", (8, 16), (0, 1), memory_space=5, tiles=((8, 128),))
    assert shape.on_host
    assert [leaf.memory for leaf in shape.leaves()] == ["host", "HBM"]
    assert not shape.elements[1].on_host


@pytest.mark.parametrize(
    ("text", "padded"),
    [
        ("f32[2,2048]{1,0:T(2,128)}", 2 * 2048 * 4),
        ("bf16[3,100]{1,0:T(8,128)(2,1)S(1)}", 8 * 128 * 2),
        ("bf16[3,100]{0,1:T(8,128)(2,1)}", 104 * 128 * 2),
        ("s32[]{:T(128)}", 4),
        ("f32[100]{0:T(1024)}", 1024 * 4),
        ("f32[100]{0:T(8,128)}", 8 * 128 * 4),
        ("(f32[100]{0:T(128)}, f32[7])", 128 * 4 + 7 * 4),
        ("f32[]{:S(6)}", 4),
    ],
)
def test_tiles_pad_the_fastest_dimensions(text: str, padded: int) -> None:
    shape = parse_shape(text)
    assert shape.padded_bytes == padded
    assert str(shape) == text


@pytest.mark.parametrize("text", ["", "f32", "f99[2]", "f32[2", "(f32[2]", "f32[2] x", "(" * 9999])
def test_text_that_is_not_a_shape_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="not a shape"):
        parse_shape(text)


def arrays() -> st.SearchStrategy[Shape]:
    dims = st.lists(st.integers(0, 9), max_size=4).map(tuple)
    dtypes = st.sampled_from(sorted(BITS))
    return st.builds(Shape, dtypes, dims, memory_space=st.sampled_from((0, 1, 5)))


def tuples(inner: st.SearchStrategy[Shape]) -> st.SearchStrategy[Shape]:
    elements = st.lists(inner, max_size=4).map(tuple)
    return st.builds(Shape, st.just("tuple"), elements=elements)


@given(st.recursive(arrays(), tuples, max_leaves=8))
def test_text_and_back(shape: Shape) -> None:
    assert parse_shape(str(shape)) == shape
    assert shape.bytes == sum(leaf.bytes for leaf in shape.leaves())


def test_memories_have_names():
    names = {number: parse_shape(f"f32[8]{{0:S({number})}}").memory for number in range(12)}
    assert (names[0], names[1], names[4], names[5]) == ("HBM", "VMEM", "SMEM", "host")
    assert (names[6], names[9], names[11]) == ("registers", "pinned HBM", "S(11)")
