"""Every character of a scalar is where its offset says, in every style that YAML has."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from slipstream.flags.readers.yaml_scalars import mapped_scalar

LOADERS = [yaml.SafeLoader, *([yaml.CSafeLoader] if yaml.__with_libyaml__ else [])]
BREAKS = "\n\r\x85\u2028\u2029"
TEXTS = st.text(
    st.one_of(
        st.sampled_from("ab=-_ \t\n'\"\\#:&*!|>%@{}[],$é😀"),
        st.characters(codec="utf-8", exclude_categories=["C"]),
    ),
    max_size=40,
)


def scalars(text: str, loader: type) -> list[yaml.ScalarNode]:
    found, pending = [], [yaml.compose(text, loader)]
    while pending:
        node = pending.pop()
        if isinstance(node, yaml.ScalarNode):
            found.append(node)
        else:
            pending += (part for item in node.value for part in item)
    return found


@pytest.mark.parametrize("loader", LOADERS)
@given(value=TEXTS, style=st.sampled_from([None, "'", '"', "|", ">"]), width=st.integers(10, 60))
def test_any_text_in_any_style(loader: type, value: str, style: str | None, width: int) -> None:
    text = yaml.dump(
        {"key": {"inner": value}, "after": "x"},
        default_style=style,
        width=width,
        allow_unicode=width % 2 == 0,
    )
    for node in scalars(text, loader):
        mapped = mapped_scalar(node, text)
        assert mapped is not None
        assert mapped.text == node.value
        assert len(mapped.offsets) == len(node.value)
        assert sorted(mapped.offsets) == list(mapped.offsets)
        for character, offset in zip(mapped.text, mapped.offsets, strict=True):
            if node.style != '"' and character not in " " + BREAKS:
                assert text[offset] == character
            assert node.start_mark.index <= offset <= node.end_mark.index


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("properties", ["", "&anchor ", "!!str ", "!!str &anchor # why\n    "])
@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("--a=1 --b=2", "--a=1 --b=2"),
        ("--a=1\n    --b=2", "--a=1 --b=2"),
        ("--a=1   # why", "--a=1"),
        ("'--a=''1''\n\n    --b=2'", "--a='1' --b=2"),
        ('"--a=\\"1\\" \\\n    --b=2"', '--a="1" --b=2'),
        ('" --a=1\\t--b=\\x41 "', "--a=1 --b=A"),
        ("|\n    --a=1\n      --b=2\n\n    --c=3", "--a=1 --b=2 --c=3"),
        ("|2-  # why\n      --a=1\n    --b=2", "--a=1 --b=2"),
        (">-\n    --a=1\n    --b=2\n\n      --c=3\n    --d=4\n", "--a=1 --b=2 --c=3 --d=4"),
        ('"\\\n    --a=1\\\n    \\ --b=2"', "--a=1 --b=2"),
    ],
)
def test_words_are_where_they_are_written(
    loader: type, newline: str, properties: str, written: str, words: str
) -> None:
    text = f"key:\n  inner: {properties}{written}\n".replace("\n", newline)
    node = scalars(text, loader)[0]
    mapped = mapped_scalar(node, text)
    assert mapped is not None
    assert mapped.text == node.value
    assert " ".join(mapped.text.split()) == words
    for character, offset in zip(mapped.text, mapped.offsets, strict=True):
        assert text[offset] == character or character in " \t\nA"
