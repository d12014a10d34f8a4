"""HTML out of Python: nothing that is text becomes markup."""

import json

from hypothesis import given
from hypothesis import strategies as st

from slipstream.outputs.html.markup import Html, embedded, join, tag


def test_elements():
    assert (
        tag("td", "3 < 4 & 5", class_="n", data_v=3)
        == '<td class="n" data-v="3">3 &lt; 4 &amp; 5</td>'
    )
    assert tag("p", ["a", None, tag("b", "c")]) == "<p>a<b>c</b></p>"
    assert (
        tag("button", "x", disabled=True, hidden=False, title=None) == "<button disabled>x</button>"
    )
    assert tag("meta", name="a", content='"') == '<meta name="a" content="&quot;">'
    assert tag("rect", x=1.0 / 3, class_="f") == '<rect x="0.333333" class="f"/>'
    assert join(Html("<i>")) == "<i>" and join("<i>") == "&lt;i&gt;"


@given(st.text())
def test_text_stays_text(text):
    """Whatever a name holds, the element has no other element in it."""
    made = tag("td", text, title=text)
    assert made.count("<") == 2 and made.count(">") == 2
    assert made.partition(">")[0].count('"') == 2


@given(st.recursive(st.none() | st.text() | st.integers(), st.lists))
def test_data_can_be_embedded(data):
    """A script element with JSON ends where it should, and holds what was given."""
    text = embedded(data)
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == data


def test_the_end_of_a_script_is_no_end():
    assert embedded({"a": "</script>"}) == '{"a":"\\u003c/script\\u003e"}'
