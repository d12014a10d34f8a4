"""What a stretch of time was spent on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import profile
from serve.plain import plain_totals
from serve.test_scene import scene_of, two_steps
from slipstream.serve.range_summary import summary, totals

OPS = st.sampled_from(["dot.1", "add.2", "copy-start.3"])


@given(
    st.lists(st.tuples(OPS, st.integers(0, 9), st.integers(0, 5), st.booleans()), min_size=1),
    st.integers(-5, 60),
    st.integers(1, 60),
)
def test_totals(rows: list[tuple[str, int, int, bool]], from_us: int, span: int) -> None:
    built = profile()
    for op, us, gap, other in rows:
        built.idle(gap).kernel(op, us, lane="Stream #2" if other else "Stream #1")
    (layer,) = scene_of(built.build()).members[0].layers
    window = (from_us * 10**6, (from_us + span) * 10**6)
    found, plain = totals(layer, *window), plain_totals(layer, *window)
    for group, (time, count) in enumerate(zip(found.time_ps, found.count, strict=True)):
        assert (pytest.approx(time), count) == plain.get(group, (0.0, 0))


def test_summary_of_a_window() -> None:
    scene = scene_of(two_steps())
    # Half of the first dot, all of the first all-reduce.
    assert summary(scene, 5, 14) == {
        "from_us": 5,
        "to_us": 14,
        "members": [
            {
                "name": "a",
                "devices": 1,
                "by_kind": {"compute": 5.0, "communication": 6.0, "copy": 0.0},
                "events": 2,
                "ops": [
                    {
                        "name": "all-reduce.1",
                        "readable": "all-reduce 32 B",
                        "kind": "communication",
                        "us": 6.0,
                        "source": "",
                        "description": "",
                    },
                    {
                        "name": "dot.1",
                        "readable": "x @ y",
                        "kind": "compute",
                        "us": 5.0,
                        "source": "",
                        "description": "",
                    },
                ],
                "more": 0,
            }
        ],
    }


def test_each_profile_has_its_own() -> None:
    found = summary(scene_of(two_steps(), two_steps(us=8)), 0, 100)["members"]
    assert [(one["name"], one["by_kind"]["compute"]) for one in found] == [("a", 20.0), ("b", 16.0)]
