"""What is said of one slice."""

from pathlib import Path

import pytest

from analyses.test_slack import COMM, NCCL, TWO
from builders import STEP, profile, program
from serve.test_scene import scene_of, two_steps
from slipstream.serve.details import detail
from slipstream.serve.scene import Scene, members_of
from slipstream.serve.search import search
from slipstream.sources.load import load


def test_an_event_of_a_device() -> None:
    assert detail(scene_of(two_steps()), 0, 14.0, 0) == {
        "title": "x @ y",
        "rows": [
            ("instruction", "dot.1"),
            ("kind", "compute"),
            ("per execution", "10 µs (median of 2 executions)"),
            ("program", STEP),
            ("kernel", "dot_1"),
            ("step", "1"),
        ],
        "source": "",
        "partner": None,
    }


def test_an_execution_that_was_cut_off_does_not_make_fractions_of_events() -> None:
    built = profile().with_program(STEP, program(STEP, ["while.1"], {"while.1": (7, ["dot.1"])}))
    for events in (7, 7, 2):
        built.execution_of()
        for _ in range(events):
            built.kernel("dot.1", 10)
    found = detail(scene_of(built.build()), 0, 0.0, 0)
    assert found is not None
    said = "70 µs in 7 events (median of 3 executions)"
    assert ("per execution", said) in found["rows"]


def test_an_event_of_a_host() -> None:
    built = profile().kernel("dot.1", 5).annotation(7, 0, 9).build()
    assert detail(scene_of(built), 1, 0.0, 0) == {
        "title": "train",
        "rows": [("kind", "host"), ("step", "7")],
        "source": "",
        "partner": None,
    }


@pytest.mark.parametrize("place", [(0, 3.0, 0), (0, 14.0, 1), (9, 14.0, 0), (-1, 0.0, 0)])
def test_nothing_is_said_where_nothing_starts(place: tuple[int, float, int]) -> None:
    assert detail(scene_of(two_steps()), *place) is None


def test_partners_point_at_each_other() -> None:
    names = ["all-gather-start.1", "dot.1", "all-gather-done.1"]
    built = profile().with_program(STEP, program(STEP, names))
    for step in range(3):
        if step:
            built.execution_of()
        built.kernel("all-gather-start.1", 2, lane="Stream #20").kernel("dot.1", 5)
        built.kernel("all-gather-done.1", 1)
    scene = scene_of(built.build())
    there = detail(scene, 0, 8.0, 0)
    back = detail(scene, 1, 15.0, 0)
    assert there is not None and back is not None
    assert there["partner"] == {
        "lane": 1, "start_us": 15.0, "duration_us": 1.0, "depth": 0, "name": "all-gather-done.1",
    }  # fmt: skip
    assert back["title"] == "wait for all-gather 32 B"
    assert back["partner"]["start_us"] == 8.0


def test_a_recorded_collective_has_bytes_slack_source_and_what_waits_for_it(data: Path) -> None:
    path = str(data / "nccl2_lhs_r0.xplane.pb.gz")
    scene = Scene(members_of([path], [load(path)], True))
    hit = next(
        hit
        for hit in search(scene, "all-gather.9.1", 0, scene.span_us)["hits"]
        if scene.lanes[hit["lane"]].name == "Stream #67"
    )
    found = detail(scene, hit["lane"], hit["start_us"], hit["depth"])
    assert found is not None
    rows = dict(found["rows"])
    assert found["source"] == "model.py:25"
    assert rows["bytes"].startswith("268 MB at ")
    assert rows["slack"] == "none; needed by custom-call.12 (model.py:25)"
    assert rows["phase"] == "backward" and "ncclDevKernel_AllGather" in rows["kernel"]
    assert found["partner"]["name"] == "custom-call.12"
    assert found["partner"]["start_us"] >= hit["start_us"] + hit["duration_us"] - 5


def test_slack_is_that_of_the_slices_own_device() -> None:
    """The same gather of 20 µs: on the first GPU it is waited for, on the second 30 µs are left."""
    built = profile().with_program(STEP, TWO)
    for device, us in enumerate((20, 50)):
        if device:
            built.device("GPU:1").execution_of()
        for at in (0, 200):
            built.at(at).kernel("all-gather-start.1", 20, NCCL, COMM)
            built.at(at).kernel("exp.1", us).at(at + us)
            built.kernel("exp.2", 30).kernel("add.1", 10).execution_of()
    scene = scene_of(built.build())
    lanes = [lane for lane in range(len(scene.lanes)) if scene.lanes[lane].name == "Stream #20"]
    found = [dict(detail(scene, lane, 0.0, 0)["rows"])["slack"] for lane in lanes]
    assert found == ["none; needed by exp.2", "30 µs; needed by exp.2"]
